"""OpenAI's API as data: request bodies in, response bodies out. No HTTP, no Ray, no clock.

Nothing in a request is ignored. A field is honoured exactly, or refused by name: as unknown, or as not supported yet.
Values that ask for nothing (null, ``n: 1``, ``tools: []``) are accepted everywhere.

Prompts are tokenised as vLLM does: a chat is rendered by the model's template, then tokenised as one text. Text that
spells a special token, such as ``<|im_end|>``, therefore becomes that token, in message contents too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Literal, TypeVar

from jinja2 import TemplateError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, from_json
from transformers import PreTrainedTokenizerBase

from outrider.errors import ParameterError
from outrider.text import backend_of
from outrider.types import FinishReason, GenerationId, GenerationRequest, RoundStats, SamplingParams
from serve_app.errors import (
    MalformedBodyError,
    MissingFieldError,
    PromptTooLongError,
    UnknownFieldError,
    UnknownModelError,
    UnsupportedFieldError,
)

_MAX_STOP_STRINGS = 16
_MAX_STOP_CHARS = 1024
_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
_INT64 = range(-(2**63), 2**63)

_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True)
StopString = Annotated[str, Field(min_length=1, max_length=_MAX_STOP_CHARS)]


class StreamOptions(BaseModel):
    """``stream_options``."""

    model_config = _STRICT
    include_usage: bool = False


class OutriderOptions(BaseModel):
    """``outrider``: our own options. ``window`` fixes the draft tokens per round; 0 drafts nothing."""

    model_config = _STRICT
    window: int | None = None


class TextPart(BaseModel):
    """One part of a message's content."""

    model_config = _STRICT
    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a chat. Its parts are joined by newlines, as vLLM does."""

    model_config = _STRICT
    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


class GenerationBody(BaseModel):
    """What completions and chats have in common. Ranges are ``SamplingParams``' and ``to_generation``'s."""

    model_config = _STRICT
    model: str
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    max_tokens: int | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=_MAX_STOP_STRINGS)] = []
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] = {}
    seed: int | None = None
    ignore_eos: bool = False
    user: str | None = None  # who asks; of no meaning to a response
    safety_identifier: str | None = None  # the same, newer
    outrider: OutriderOptions = OutriderOptions()


class CompletionBody(GenerationBody):
    """``POST /v1/completions``."""

    prompt: str | list[int] | list[str]


class ChatBody(GenerationBody):
    """``POST /v1/chat/completions``. ``max_completion_tokens`` is the newer name of ``max_tokens``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What the served model allows of a request."""

    model_name: str
    max_context_tokens: int  # prompt and output together
    max_output_tokens: int
    vocab_size: int
    k_max: int
    max_prompt_chars: int  # a longer text is refused without the cost of tokenising it


_Body = TypeVar("_Body", bound=GenerationBody)


@dataclass(frozen=True, slots=True)
class _NotYet:
    """A field of OpenAI's or vLLM's API that is refused unless its value asks for nothing."""

    advice: str
    neutral: tuple[object, ...] = ()


_ONE_EACH = "send one request for each"
_NO_TOOLS = "describe the tools in the prompt and parse the answer"
_NO_LOGPROBS = "leave it out"
_TEXT_ONLY = "send and expect text only"
_PLAIN = "ask for the format in the prompt"
_LEAVE_OUT = "leave it out"
_NO_HOSTED = "send everything the model is to read in the prompt"
_NOT_YET: Mapping[str, _NotYet] = {
    "n": _NotYet(_ONE_EACH, (1,)),
    "best_of": _NotYet(_ONE_EACH, (1,)),
    "use_beam_search": _NotYet(_LEAVE_OUT, (False,)),
    "length_penalty": _NotYet(_LEAVE_OUT, (1, 1.0)),
    "early_stopping": _NotYet(_LEAVE_OUT, (False,)),
    "logprobs": _NotYet(_NO_LOGPROBS, (False,)),
    "top_logprobs": _NotYet(_NO_LOGPROBS, (0,)),
    "prompt_logprobs": _NotYet(_NO_LOGPROBS),
    "return_token_ids": _NotYet(_LEAVE_OUT, (False,)),
    "echo": _NotYet("put prompt and response together yourself", (False,)),
    "suffix": _NotYet("put what follows into the prompt", ("",)),
    "tools": _NotYet(_NO_TOOLS, ([],)),
    "tool_choice": _NotYet(_NO_TOOLS, ("none", "auto")),
    "tool_calls": _NotYet(_NO_TOOLS, ([],)),
    "tool_call_id": _NotYet(_NO_TOOLS),
    "functions": _NotYet(_NO_TOOLS, ([],)),
    "function_call": _NotYet(_NO_TOOLS, ("none", "auto")),
    "parallel_tool_calls": _NotYet(_NO_TOOLS, (True, False)),
    "web_search_options": _NotYet(_NO_HOSTED),
    "documents": _NotYet(_NO_HOSTED, ([],)),
    "response_format": _NotYet(_PLAIN, ({"type": "text"},)),
    "structured_outputs": _NotYet(_PLAIN),
    "guided_json": _NotYet(_PLAIN),
    "guided_regex": _NotYet(_PLAIN),
    "guided_choice": _NotYet(_PLAIN),
    "guided_grammar": _NotYet(_PLAIN),
    "verbosity": _NotYet(_PLAIN),
    "reasoning_effort": _NotYet(_LEAVE_OUT, ("none",)),
    "audio": _NotYet(_TEXT_ONLY),
    "modalities": _NotYet(_TEXT_ONLY, (["text"],)),
    "prediction": _NotYet(_LEAVE_OUT),
    "store": _NotYet("keep the response yourself", (False,)),
    "metadata": _NotYet("keep it yourself", ({},)),
    "service_tier": _NotYet(_LEAVE_OUT, ("auto", "default")),
    "prompt_cache_key": _NotYet("leave it out; equal prefixes are cached anyway"),
    "prompt_cache_retention": _NotYet(_LEAVE_OUT),
    "priority": _NotYet(_LEAVE_OUT, (0,)),
    "min_tokens": _NotYet("use ignore_eos with max_tokens", (0,)),
    "stop_token_ids": _NotYet("use stop", ([],)),
    "bad_words": _NotYet("use logit_bias", ([],)),
    "allowed_token_ids": _NotYet("use logit_bias"),
    "logits_processors": _NotYet("use logit_bias"),
    "include_stop_str_in_output": _NotYet("append the stop string yourself", (False,)),
    "skip_special_tokens": _NotYet("special tokens have no text", (True,)),
    "spaces_between_special_tokens": _NotYet("special tokens have no text", (True,)),
    "detokenize": _NotYet("text is always sent", (True,)),
    "truncate_prompt_tokens": _NotYet("shorten the prompt yourself"),
    "add_special_tokens": _NotYet("send token ids to /v1/completions"),
    "add_generation_prompt": _NotYet("send the text to /v1/completions", (True,)),
    "continue_final_message": _NotYet("send the text to /v1/completions", (False,)),
    "chat_template": _NotYet("send the text to /v1/completions"),
    "chat_template_kwargs": _NotYet("send the text to /v1/completions", ({},)),
    "name": _NotYet("put the name into the content"),
    "refusal": _NotYet("put it into the content"),
    "annotations": _NotYet(_LEAVE_OUT, ([],)),
    "continuous_usage_stats": _NotYet("use include_usage", (False,)),
    "include_obfuscation": _NotYet("nothing is obfuscated", (False,)),
}

_NESTED: Mapping[str, type[BaseModel]] = {  # by field name: what an object there is, or the objects of a list
    "stream_options": StreamOptions,
    "outrider": OutriderOptions,
    "messages": Message,
    "content": TextPart,
}
_NEEDED_BY_FIELD = {
    "prompt": "a text, or a list of token ids",
    "content": "a text, or a list of parts such as {'type': 'text', 'text': '...'}",
    "stop": f"a text or a list of up to {_MAX_STOP_STRINGS} texts, each of 1 to {_MAX_STOP_CHARS} characters",
    "logit_bias": "an object of token ids and numbers, such as {'50': -100}",
    "messages": "a list of at least one message",
    "role": "one of 'system', 'user', 'assistant' (others are not supported yet)",
    "type": "'text' (other parts are not supported yet)",
}
_NEEDED_BY_TYPE = {
    "int_type": "an integer",
    "float_type": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "model_type": "an object",
}


def parse_body(body: bytes, kind: type[_Body], limits: RequestLimits) -> _Body:
    """Read a request body.

    Raises:
        MalformedBodyError: no JSON, or not an object.
        MissingFieldError: a required field is absent or null.
        UnknownFieldError: a field that no API knows.
        UnsupportedFieldError: one that we do not honour yet, with a value that asks for something.
        UnknownModelError: another model than the one served.
        ParameterError: a value of the wrong type.
    """
    try:
        data = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise MalformedBodyError(f"needs a body in JSON (UTF-8), found: {error}") from error
    if not isinstance(data, dict):
        raise MalformedBodyError(f"needs a JSON object, found a {type(data).__name__}")
    fields = _without_neutral(data, kind, "")
    fields |= {name: _nested(fields[name], name) for name in _NESTED if name in fields}
    try:
        parsed = kind.model_validate(fields)
    except ValidationError as error:
        raise _explained(error.errors(include_url=False, include_context=False)[0], fields) from None
    if parsed.model != limits.model_name:
        raise UnknownModelError("model", f"model needs one of: {limits.model_name}; found {parsed.model!r}")
    if "stream_options" in fields and not parsed.stream:
        raise ParameterError("stream_options", "stream: true", fields["stream_options"])
    return parsed


def prompt_tokens(
    body: CompletionBody | ChatBody, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits
) -> list[int]:
    """Tokenise the prompt; may be called from any thread.

    Raises:
        PromptTooLongError: it leaves no room for a token of output.
        ParameterError: it is empty or holds ids the model does not have, or the chat template refuses the messages.
        UnsupportedFieldError: several prompts, or a chat for a model without a chat template.
    """
    if isinstance(body, ChatBody):
        text = _rendered(body.messages, tokenizer)
        field, ids = "messages", _tokenised(text, "messages", tokenizer, limits, add_special_tokens=False)
    else:
        field, ids = "prompt", _completion_tokens(body.prompt, tokenizer, limits)
    if not ids:
        raise ParameterError(field, "at least one token", "")
    if len(ids) >= limits.max_context_tokens:
        raise _prompt_too_long(field, len(ids), limits)
    return ids


def to_generation(
    body: CompletionBody | ChatBody,
    prompt_ids: Sequence[int],
    limits: RequestLimits,
    *,
    generation: GenerationId,
    default_seed: int,
) -> GenerationRequest:
    """What a coordinator is asked for.

    Args:
        body: a parsed body.
        prompt_ids: its prompt, from ``prompt_tokens``.
        limits: of the served model.
        generation: a fresh id.
        default_seed: unsigned 64 bit, for a request that names none.

    Raises:
        ParameterError: a value is out of range.
        PromptTooLongError: prompt and ``max_tokens`` together exceed the context.
    """
    seed = default_seed if body.seed is None else body.seed
    if body.seed is not None and body.seed not in _INT64:
        raise ParameterError("seed", f"an integer in {_INT64.start}..{_INT64.stop - 1}", body.seed)
    window = body.outrider.window
    if window is not None and not 0 <= window <= limits.k_max:
        raise ParameterError("outrider.window", f"an integer in 0..{limits.k_max}", window)
    params = SamplingParams(
        temperature=body.temperature,
        top_k=0 if body.top_k >= limits.vocab_size else body.top_k,
        top_p=body.top_p,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=_logit_bias(body.logit_bias, limits.vocab_size),
        seed=seed % 2**64,
    )
    return GenerationRequest(
        generation=generation,
        prompt_ids=tuple(prompt_ids),
        params=params,
        max_tokens=_max_tokens(body, len(prompt_ids), limits),
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop),
        ignore_eos=body.ignore_eos,
        window=window,
    )


@dataclass(frozen=True, slots=True)
class ResponseForm:
    """Writes one response in the form of its endpoint. ``created_s`` is Unix time."""

    id: str
    model: str
    created_s: int
    chat: bool
    usage_in_stream: bool = False

    def whole(self, text: str, reason: FinishReason, usage: Mapping[str, object]) -> dict[str, object]:
        """All of it at once."""
        message = {"role": "assistant", "content": text, "refusal": None}
        content: dict[str, object] = {"message": message} if self.chat else {"text": text}
        choice: dict[str, object] = {"index": 0, **content, "logprobs": None, "finish_reason": reason}
        return self._framed("chat.completion", [choice]) | {"usage": usage}

    def role_event(self) -> dict[str, object]:
        """What the stream of a chat opens with."""
        return self._event({"delta": {"role": "assistant", "content": ""}})

    def text_event(self, text: str) -> dict[str, object]:
        """A piece of text."""
        return self._event({"delta": {"content": text}} if self.chat else {"text": text})

    def last_event(self, reason: FinishReason) -> dict[str, object]:
        """Why it ended."""
        return self._event({"delta": {}} if self.chat else {"text": ""}, reason)

    def usage_event(self, usage: Mapping[str, object]) -> dict[str, object]:
        """What it cost, if that was asked for."""
        return self._framed("chat.completion.chunk", []) | {"usage": usage}

    def _event(self, content: Mapping[str, object], reason: FinishReason | None = None) -> dict[str, object]:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": reason}
        usage = {"usage": None} if self.usage_in_stream else {}  # OpenAI: null on all chunks but the last
        return self._framed("chat.completion.chunk", [choice]) | usage

    def _framed(self, chat_object: str, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": self.id,
            "object": chat_object if self.chat else "text_completion",
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
        }


def usage_of(prompt_tokens: int, completion_tokens: int, stats: RoundStats) -> dict[str, object]:
    """OpenAI's ``usage``, and ``usage.outrider``: how the response was made."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": stats.accepted_tokens,
            "rejected_prediction_tokens": stats.drafted_tokens - stats.accepted_tokens,
        },
        "outrider": {
            "rounds": stats.rounds,
            "speculative_rounds": stats.speculative_rounds,
            "drafted_tokens": stats.drafted_tokens,
            "accepted_tokens": stats.accepted_tokens,
            "lossless": True,
        },
    }


def model_card(limits: RequestLimits, created_s: int) -> dict[str, object]:
    """One entry of ``/v1/models``; ``max_model_len`` is vLLM's name for the context."""
    return {
        "id": limits.model_name,
        "object": "model",
        "created": created_s,
        "owned_by": "outrider",
        "max_model_len": limits.max_context_tokens,
        "outrider": {"max_window": limits.k_max},
    }


def _without_neutral(data: Mapping[str, object], kind: type[BaseModel], where: str) -> dict[str, object]:
    """The fields of ``kind``, less nulls; other fields are dropped if they ask for nothing, and else refused."""
    kept = {}
    for name, value in data.items():
        if name in kind.model_fields:
            if value is not None:
                kept[name] = value
        elif name in _NOT_YET:
            not_yet = _NOT_YET[name]
            if value is not None and not any(type(value) is type(ok) and value == ok for ok in not_yet.neutral):
                raise UnsupportedFieldError(where + name, f"{where}{name} is not supported yet; {not_yet.advice}")
        else:
            near = get_close_matches(name[:64], kind.model_fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(kind.model_fields)}"
            short = name[:64]
            raise UnknownFieldError(where + short, f"{where}{short} is no known field; {hint}")
    return kept


def _nested(value: object, where: str) -> object:
    """``_without_neutral`` for the objects inside a body; what is no object where one should be is left to pydantic."""
    if isinstance(value, list):
        return [_nested(item, f"{where}[{i}]") for i, item in enumerate(value)]
    kind = _NESTED[where.rpartition(".")[2].partition("[")[0]]
    if not isinstance(value, dict):
        return value
    if kind is TextPart and value.get("type", "text") != "text":
        raise UnsupportedFieldError(
            f"{where}.type", f"{where}.type {value['type']!r:.64} is not supported yet; {_TEXT_ONLY}"
        )
    kept = _without_neutral(value, kind, f"{where}.")
    if isinstance(kept.get("content"), list):
        kept["content"] = _nested(kept["content"], f"{where}.content")
    return kept


def _explained(error: ErrorDetails, data: object) -> ParameterError | MissingFieldError | UnknownFieldError:
    """Name the field by its path in the body (pydantic's path has type names too), what it needs and what is there."""
    path, last, found = "", "", data
    for step in error["loc"]:
        if isinstance(step, int) and isinstance(found, list):
            path, last, found = f"{path}[{step}]", "", found[step]
        elif isinstance(found, dict) and (step in found or error["type"] == "missing"):
            last = str(step)
            path, found = (f"{path}.{step}" if path else last), found.get(step)
    if error["type"] == "missing":
        return MissingFieldError(path, f"{path} is missing; it needs {_NEEDED_BY_FIELD.get(last, 'a value')}")
    if error["type"] == "extra_forbidden":
        return UnknownFieldError(path, f"{path} is no known field")
    needed = _NEEDED_BY_FIELD.get(last) or _NEEDED_BY_TYPE.get(error["type"]) or error["msg"]
    return ParameterError(path, needed, found)


def _completion_tokens(
    prompt: str | list[int] | list[str], tokenizer: PreTrainedTokenizerBase, limits: RequestLimits
) -> list[int]:
    if isinstance(prompt, str):
        return _tokenised(prompt, "prompt", tokenizer, limits, add_special_tokens=True)
    texts = [item for item in prompt if isinstance(item, str)]
    if len(texts) > 1:
        raise UnsupportedFieldError("prompt", f"a prompt of several texts is not supported yet; {_ONE_EACH}")
    if texts:
        return _tokenised(texts[0], "prompt", tokenizer, limits, add_special_tokens=True)
    ids = [item for item in prompt if isinstance(item, int)]
    if len(ids) >= limits.max_context_tokens:
        raise _prompt_too_long("prompt", len(ids), limits)
    for i, token_id in enumerate(ids):
        if not 0 <= token_id < limits.vocab_size:
            raise ParameterError(f"prompt[{i}]", f"a token id in 0..{limits.vocab_size - 1}", token_id)
    return ids


def _rendered(messages: Sequence[Message], tokenizer: PreTrainedTokenizerBase) -> str:
    if tokenizer.chat_template is None:
        raise UnsupportedFieldError(
            "messages", "chat is not supported by this model (no template); use /v1/completions"
        )
    chat = [{"role": message.role, "content": message.text} for message in messages]
    try:
        return str(tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False))
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
        roles = ", ".join(message.role for message in messages)
        raise ParameterError("messages", f"what the model's chat template takes ({error})", roles) from error


def _tokenised(
    text: str, field: str, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits, *, add_special_tokens: bool
) -> list[int]:
    if len(text) > limits.max_prompt_chars:
        raise PromptTooLongError(
            field, f"{field} needs at most {limits.max_prompt_chars} characters, found {len(text)}; shorten the text"
        )
    # Of the backend's ways to encode, the one that lets other threads run meanwhile.
    (encoding,) = backend_of(tokenizer).encode_batch_fast([text], add_special_tokens=add_special_tokens)
    return list(encoding.ids)


def _prompt_too_long(field: str, found_tokens: int, limits: RequestLimits) -> PromptTooLongError:
    most = limits.max_context_tokens - 1
    needed = f"at most {most} tokens (a context of {most + 1}, one of it for output)"
    return PromptTooLongError(field, f"{field} needs {needed}, found {found_tokens} tokens; shorten it")


def _max_tokens(body: CompletionBody | ChatBody, prompt_len: int, limits: RequestLimits) -> int:
    room = limits.max_context_tokens - prompt_len
    most = min(room, limits.max_output_tokens)
    field, asked = "max_tokens", body.max_tokens
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        if asked not in (None, body.max_completion_tokens):
            raise ParameterError("max_tokens", "to equal max_completion_tokens, or be left out", asked)
        field, asked = "max_completion_tokens", body.max_completion_tokens
    if asked is None:
        return most if isinstance(body, ChatBody) else min(_DEFAULT_COMPLETION_TOKENS, most)
    if not 1 <= asked <= limits.max_output_tokens:
        raise ParameterError(field, f"an integer in 1..{limits.max_output_tokens}", asked)
    if asked > room:
        raise PromptTooLongError(
            field,
            f"{field} needs at most {room} (a context of {limits.max_context_tokens} tokens, {prompt_len} of them "
            f"prompt), found {asked}; lower it or shorten the prompt",
        )
    return asked


def _logit_bias(biases: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    bias_by_id = {}
    for key, bias in biases.items():
        token_id = int(key) if key.isascii() and key.isdigit() and len(key) <= len(str(vocab_size)) else vocab_size
        if token_id >= vocab_size or str(token_id) != key:
            raise ParameterError("logit_bias", f"token ids in 0..{vocab_size - 1} as keys", key)
        bias_by_id[token_id] = float(bias)
    return tuple(sorted(bias_by_id.items()))
