"""vLLM's ``/tokenize`` and ``/detokenize`` as data. May be called from any thread.

Texts are tokenised like prompts of completions and chats, and may be longer than the context, as their length is the
question: up to ``MAX_TOKENS``, or twice the context.
"""

import json
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import ParameterError
from outrider.text.tokens import backend_of
from serve_app.api.openai.bodies import MAX_MESSAGES, MAX_TOKEN_IDS, ChatBody, ChatMessage, Described, Effort, Tools
from serve_app.api.openai.encoding import decode, encode_bounded
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.openai.parsing import check_arguments, check_model, read_fields, read_object
from serve_app.api.openai.prompts import chat_text
from serve_app.api.openai.tools.request import check_names
from serve_app.api.service import RequestLimits
from serve_app.service_answers import Detokenized, Tokenized

MAX_TOKENS = 100_000  # of a text, either way; twice the context if that is longer
MAX_CHARS = 2**20  # of decoded text: a client that does not read keeps it in memory
_PART_BYTES = 2**16
_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True)


class TokenizeBody(BaseModel):
    """Common fields of both forms of ``POST /tokenize``."""

    model_config = _STRICT
    model: str | None = None
    return_token_strs: bool = False


class TokenizeTextBody(TokenizeBody):
    """``POST /tokenize`` of a text."""

    prompt: str
    add_special_tokens: bool = True


class TokenizeChatBody(TokenizeBody):
    """``POST /tokenize`` of a chat."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True, max_length=MAX_MESSAGES)]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    tools: Tools | None = None
    chat_template_kwargs: Described | None = None
    reasoning_effort: Effort | None = None


class DetokenizeBody(BaseModel):
    """``POST /detokenize``."""

    model_config = _STRICT
    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True, max_length=MAX_TOKEN_IDS)]


def tokenize(
    content: bytes, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits, ignored: IgnoredFields
) -> Sequence[bytes]:
    """Return the answer's JSON, in parts.

    Raises:
        OutriderError: as ``parse_body``; or the chat template refuses the messages.
    """
    data = read_object(content, limits)
    if "messages" in data:
        chat = read_fields(data, TokenizeChatBody, ignored)
        check_model(chat.model, limits)
        check_arguments(chat.messages, limits, len(content))
        text, special = _chat_text(chat, "add_generation_prompt" in data, tokenizer, limits), chat.add_special_tokens
        names = chat.return_token_strs
    else:
        body = read_fields(data, TokenizeTextBody, ignored)
        check_model(body.model, limits)
        text, special, names = body.prompt, body.add_special_tokens, body.return_token_strs
    ids = token_ids(text, "messages" if "messages" in data else "prompt", tokenizer, limits, special=special)
    backend = backend_of(tokenizer)
    answer: Tokenized = {
        "count": len(ids),
        "max_model_len": limits.max_context_tokens,
        "tokens": ids,
        "token_strs": list(map(backend.id_to_token, ids)) if names else None,
    }
    return _in_parts(answer)


def token_ids(
    text: str, field: str, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits, *, special: bool
) -> list[int]:
    """Encode a text, with special tokens around it if ``special``; refuse one that is too long, as ``field``."""
    most = _most_tokens(limits)
    ids = encode_bounded(text, backend_of(tokenizer), most, add_special_tokens=special)
    if isinstance(ids, int) or len(ids) > most:
        found = ids if isinstance(ids, int) else len(ids)
        raise ParameterError(field, f"a text of at most {most} tokens; send it in pieces", found)
    return ids


def detokenize(
    content: bytes, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits, ignored: IgnoredFields
) -> Sequence[bytes]:
    """Return the decoded ids, special tokens included, as JSON in parts.

    Raises:
        OutriderError: as ``parse_body``; or an id is outside the vocabulary, or ids or text are too long.
    """
    body = read_fields(read_object(content, limits), DetokenizeBody, ignored)
    check_model(body.model, limits)
    if len(body.tokens) > (most := _most_tokens(limits)):
        raise ParameterError("tokens", f"at most {most} tokens; send them in pieces", len(body.tokens))
    for i, token_id in enumerate(body.tokens):
        if not 0 <= token_id < limits.vocab_size:
            raise ParameterError(f"tokens[{i}]", f"a token id in 0..{limits.vocab_size - 1}", token_id)
    text = decode(body.tokens, backend_of(tokenizer))
    if len(text) > MAX_CHARS:
        raise ParameterError("tokens", f"ids that spell at most {MAX_CHARS} characters; send them in pieces", len(text))
    return _in_parts({"prompt": text})


def _most_tokens(limits: RequestLimits) -> int:
    return max(MAX_TOKENS, 2 * limits.max_context_tokens)


def _in_parts(answer: Tokenized | Detokenized) -> Sequence[bytes]:
    content = json.dumps(answer, ensure_ascii=False).encode()
    return [content[at : at + _PART_BYTES] for at in range(0, len(content), _PART_BYTES)]


def _chat_text(
    body: TokenizeChatBody, prompt_named: bool, tokenizer: PreTrainedTokenizerBase, limits: RequestLimits
) -> str:
    if body.continue_final_message and body.add_generation_prompt and prompt_named:
        raise ParameterError("continue_final_message", "false where add_generation_prompt is true", True)
    opens = body.add_generation_prompt and not body.continue_final_message
    chat = ChatBody.model_construct(
        model=limits.model_name,
        messages=body.messages,
        tools=body.tools,
        chat_template_kwargs=body.chat_template_kwargs,
        reasoning_effort=body.reasoning_effort,
    )
    check_names(chat)
    return chat_text(chat, tokenizer, limits, opens_answer=opens, continues=body.continue_final_message)
