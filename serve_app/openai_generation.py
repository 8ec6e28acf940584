"""What a parsed request body asks of a coordinator: its prompt in tokens, its parameters within the model's limits.

Prompts are tokenised as vLLM does: a chat is rendered by the model's template, then tokenised as one text. Text that
spells a special token, such as ``<|im_end|>``, therefore becomes that token, in message contents too.
"""

from collections.abc import Mapping, Sequence

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from outrider.errors import ParameterError
from outrider.text import backend_of
from outrider.types import GenerationId, GenerationRequest, SamplingParams
from serve_app.errors import PromptTooLongError, UnsupportedFieldError
from serve_app.openai_api import ChatBody, CompletionBody, Message, RequestLimits
from serve_app.openai_unsupported import ONE_EACH

_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
_INT64 = range(-(2**63), 2**63)


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


def _completion_tokens(
    prompt: str | list[int] | list[str], tokenizer: PreTrainedTokenizerBase, limits: RequestLimits
) -> list[int]:
    if isinstance(prompt, str):
        return _tokenised(prompt, "prompt", tokenizer, limits, add_special_tokens=True)
    texts = [item for item in prompt if isinstance(item, str)]
    if len(texts) > 1:
        raise UnsupportedFieldError("prompt", f"a prompt of several texts is not supported yet; {ONE_EACH}")
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
