"""Fields of OpenAI's and vLLM's APIs that are not supported yet, and their neutral values.

A table, applied by ``parsing``. A field that becomes supported moves from here to a request body; one that only one
endpoint supports stays, for the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotYet:
    """A field of OpenAI's or vLLM's API that is refused unless its value is neutral."""

    advice: str
    neutral: tuple[object, ...] = ()


_NO_TOOLS = "describe the tools in the prompt and parse the answer"
TEXT_ONLY = "send and expect text only"
_PLAIN = "ask for the format in the prompt"
_LEAVE_OUT = "leave it out"
_PENALTY = "use repetition_penalty"
_TRUNCATE = "use top_p, top_k or min_p"
_TO_TEMPLATE = "use reasoning_effort or chat_template_kwargs, if the model's chat template knows them"
_NO_HOSTED = "send everything the model is to read in the prompt"
NOT_YET: Mapping[str, NotYet] = {
    "best_of": NotYet("use n and choose among the choices", (1,)),
    "use_beam_search": NotYet(_LEAVE_OUT, (False,)),
    "length_penalty": NotYet(_LEAVE_OUT, (1, 1.0)),
    "early_stopping": NotYet(_LEAVE_OUT, (False,)),
    "top_logprobs": NotYet("give the number as logprobs, or use /v1/chat/completions", (0,)),
    "prompt_logprobs": NotYet("use echo and logprobs of /v1/completions"),
    "echo": NotYet("use /v1/completions", (False,)),
    "suffix": NotYet("put what follows into the prompt", ("",)),
    "tools": NotYet(_NO_TOOLS, ([],)),
    "tool_choice": NotYet(_NO_TOOLS, ("none", "auto")),
    "tool_calls": NotYet(_NO_TOOLS, ([],)),
    "tool_call_id": NotYet(_NO_TOOLS),
    "functions": NotYet(_NO_TOOLS, ([],)),
    "function_call": NotYet(_NO_TOOLS, ("none", "auto")),
    "parallel_tool_calls": NotYet(_NO_TOOLS, (True, False)),
    "web_search_options": NotYet(_NO_HOSTED),
    "documents": NotYet(_NO_HOSTED, ([],)),
    "reasoning_effort": NotYet(_LEAVE_OUT, ("none",)),
    "audio": NotYet(TEXT_ONLY),
    "modalities": NotYet(TEXT_ONLY, (["text"],)),
    "prediction": NotYet(_LEAVE_OUT),
    "bad_words": NotYet("use logit_bias", ([],)),
    "allowed_token_ids": NotYet("use logit_bias"),
    "logits_processors": NotYet("use logit_bias"),
    "spaces_between_special_tokens": NotYet("special tokens have no text", (True,)),
    "detokenize": NotYet("text is always sent", (True,)),
    "media_io_kwargs": NotYet(TEXT_ONLY, ({},)),
    "mm_processor_kwargs": NotYet(TEXT_ONLY, ({},)),
    "truncate_prompt_tokens": NotYet("shorten the prompt yourself"),
    "add_special_tokens": NotYet("send token ids to /v1/completions"),
    "add_generation_prompt": NotYet("send the text to /v1/completions", (True,)),
    "continue_final_message": NotYet("send the text to /v1/completions", (False,)),
    "chat_template": NotYet("send the text to /v1/completions"),
    "chat_template_kwargs": NotYet("send the text to /v1/completions", ({},)),
    "refusal": NotYet("put it into the content"),
    "annotations": NotYet(_LEAVE_OUT, ([],)),
    # What would change the answer, in the words of other servers.
    **dict.fromkeys(("lora", "lora_request", "lora_path", "adapter", "adapters"), NotYet("adapters are not served")),
    **dict.fromkeys(("repeat_penalty", "repeat_last_n"), NotYet(_PENALTY)),
    **dict.fromkeys(("typical_p", "tfs_z", "top_a", "xtc_probability", "mirostat", "top_n_sigma"), NotYet(_TRUNCATE)),
    **dict.fromkeys(("do_sample", "num_beams", "beam_width"), NotYet("use temperature", (True, 1))),
    **dict.fromkeys(("max_new_tokens", "max_output_tokens", "n_predict", "num_predict"), NotYet("use max_tokens")),
    **dict.fromkeys(("stop_sequences", "stopping_criteria"), NotYet("use stop", ([],))),
    **dict.fromkeys(("grammar", "json_schema", "regex", "ebnf", "structural_tag"), NotYet("use structured_outputs")),
    **dict.fromkeys(("thinking", "enable_thinking", "think", "thinking_budget"), NotYet(_TO_TEMPLATE)),
    **dict.fromkeys(("system", "instructions", "input", "prompt"), NotYet("send it as a message")),
    "messages": NotYet("use /v1/chat/completions"),
    **dict.fromkeys(("images", "image", "image_url", "input_audio", "video"), NotYet(TEXT_ONLY)),
    "thinking_token_budget": NotYet("use max_tokens"),
    "min_new_tokens": NotYet("use min_tokens"),
    "include_obfuscation": NotYet("nothing is obfuscated", (False,)),
}


_FAMILIES: Mapping[str, NotYet] = {
    "guided_": NotYet("use structured_outputs"),
    "dry_": NotYet(_PENALTY),
}
_WITHOUT_EFFECT = ("guided_decoding_backend",)  # how, not what


def not_supported(name: str, table: Mapping[str, NotYet] = NOT_YET) -> NotYet | None:
    """What is known of a field that is not supported, by its name or the beginning of it."""
    if (known := table.get(name)) is not None or name in _WITHOUT_EFFECT:
        return known
    return next((each for begins, each in _FAMILIES.items() if name.startswith(begins)), None)
