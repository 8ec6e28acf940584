"""Writing of the Messages API's answers from a chat's chunks, or from the parts of a whole answer."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import cast

from pydantic_core import from_json

from outrider.contracts.requests import FinishReason
from serve_app.answers import (
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatFinish,
    CompletionUsage,
    ToolCallDelta,
)
from serve_app.api.api_forms import AnswerFacts, server_sent
from serve_app.api.http_errors import ErrorAnswer
from serve_app.api.messages.answers import (
    AnswerBlock,
    BlockPiece,
    FailureType,
    MessageAnswer,
    MessageEvent,
    MessageFailure,
    MessageUsage,
    StopReason,
)
from serve_app.api.openai.writing.answer_parts import AnswerPart

_FAILURES: Mapping[int, FailureType] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessageWriter:
    """Writes an answer as blocks, one for each kind of content, which ends where another begins."""

    def __init__(self, facts: AnswerFacts, *, shows_thinking: bool = True) -> None:
        """``shows_thinking``: thinking blocks have their text."""
        self._facts, self._shows_thinking = facts, shows_thinking
        self._begun = self._called = False
        self._blocks = 0  # begun so far
        self._open = ""  # type of the block that has begun and not ended
        self._thought = _Signature()
        self._reason: ChatFinish | None = None
        self.stop_string: str | None = None

    def events(self, chunk: ChatCompletionChunk) -> Iterable[bytes]:
        events = list[MessageEvent]()
        if not self._begun:
            self._begun = True
            none_cached = _tokens(self._facts.prompt_tokens, 0, 0)
            events += [{"type": "message_start", "message": self._message([], none_cached)}, {"type": "ping"}]
        for choice in chunk["choices"]:
            self._add(choice, events)
        usage = chunk.get("usage")
        if usage is not None and "prompt_tokens_details" in usage:
            self._end(cast("CompletionUsage", usage), events)
        return [server_sent(event["type"], event) for event in events]

    def failure(self, answer: ErrorAnswer) -> Iterable[bytes]:
        return [server_sent("error", failure_of(answer))]

    def document(
        self,
        parts: Sequence[AnswerPart],
        reason: FinishReason,
        usage: CompletionUsage,
        _extension: Mapping[str, object],
    ) -> Mapping[str, object]:
        self._called = any(part.kind == "tool_calls" for part in parts)
        self._reason = reason
        return {**self._message([self._block(part) for part in parts], usage_of_message(usage))}

    def _block(self, part: AnswerPart) -> AnswerBlock:
        if part.kind == "tool_calls":
            return {
                "type": "tool_use",
                "id": _call_id(part.call_id),
                "name": part.name,
                "input": _arguments(part.text),
            }
        if part.kind == "content":
            return {"type": "text", "text": part.text}
        self._thought.add(part.text)
        shown = part.text if self._shows_thinking else ""
        return {"type": "thinking", "thinking": shown, "signature": self._thought.text}

    def _message(self, content: list[AnswerBlock], usage: MessageUsage) -> MessageAnswer:
        reason, sequence = self._stop()
        return {
            "id": self._facts.id,
            "type": "message",
            "role": "assistant",
            "model": self._facts.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": usage,
        }

    def _add(self, choice: ChatChunkChoice, events: list[MessageEvent]) -> None:
        """Add the events of a piece of the answer."""
        delta = choice["delta"]
        if thinking := delta.get("reasoning_content"):
            self._begin({"type": "thinking", "thinking": "", "signature": ""}, events)
            self._thought.add(thinking)
            if self._shows_thinking:
                self._continue({"type": "thinking_delta", "thinking": thinking}, events)
        if text := delta.get("content"):
            self._begin({"type": "text", "text": ""}, events)
            self._continue({"type": "text_delta", "text": text}, events)
        for call in delta.get("tool_calls", ()):
            self._call(call, events)
        self._reason = choice["finish_reason"]

    def _call(self, call: ToolCallDelta, events: list[MessageEvent]) -> None:
        function = call["function"]
        if "name" in function:
            self._stop_block(events)
            self._called = True
            block: AnswerBlock = {
                "type": "tool_use",
                "id": _call_id(call.get("id", "")),
                "name": function["name"],
                "input": {},
            }
            self._begin(block, events)
        if function["arguments"]:
            self._continue({"type": "input_json_delta", "partial_json": function["arguments"]}, events)

    def _begin(self, block: AnswerBlock, events: list[MessageEvent]) -> None:
        """Begin a block, unless one of its type is open."""
        if self._open != block["type"]:
            self._stop_block(events)
            self._open = block["type"]
            events.append({"type": "content_block_start", "index": self._blocks, "content_block": block})
            self._blocks += 1

    def _continue(self, piece: BlockPiece, events: list[MessageEvent]) -> None:
        events.append({"type": "content_block_delta", "index": self._blocks - 1, "delta": piece})

    def _stop_block(self, events: list[MessageEvent]) -> None:
        if self._open == "thinking":
            self._continue({"type": "signature_delta", "signature": self._thought.text}, events)
        if self._open:
            events.append({"type": "content_block_stop", "index": self._blocks - 1})
        self._open = ""

    def _end(self, usage: CompletionUsage, events: list[MessageEvent]) -> None:
        self._stop_block(events)
        reason, sequence = self._stop()
        assert reason is not None, "a chat tells why it ended before its usage"
        stopped: MessageEvent = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": usage_of_message(usage),
        }
        events += [stopped, {"type": "message_stop"}]

    def _stop(self) -> tuple[StopReason | None, str | None]:
        """Why the answer ended. As clients run tools by it, a call goes before ``end_turn``, even one they named."""
        if self._reason is None:
            return None, None
        if self._reason == "length":
            return "max_tokens", None
        if self.stop_string is not None:
            return "stop_sequence", self.stop_string
        return ("tool_use" if self._called else "end_turn"), None


class _Signature:
    """Hash of thinking, however it is divided: Anthropic's clients want one, and nothing here reads it."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, text: str) -> None:
        self._hash.update(text.encode(errors="replace"))

    @property
    def text(self) -> str:
        return self._hash.hexdigest()


def usage_of_message(usage: CompletionUsage) -> MessageUsage:
    """``usage`` of a whole answer."""
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    found = _tokens(usage["prompt_tokens"], cached, usage["completion_tokens"])
    if (thought := usage["completion_tokens_details"].get("reasoning_tokens")) is not None:
        found["output_tokens_details"] = {"thinking_tokens": thought}
    return {**found, "outrider": usage["outrider"]}


def failure_of(answer: ErrorAnswer, request_id: str | None = None) -> MessageFailure:
    """Write an error in Anthropic's form.

    Statuses are those of all APIs here: 503, which proxies and load balancers know, where theirs has 529. Their clients
    look for ``prompt is too long``, upon which they shorten the dialogue.
    """
    detail = answer.body["error"]
    kind = "overloaded_error" if answer.code == "busy" else _FAILURES.get(answer.status)
    message = detail["message"]
    if answer.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"
    failure: MessageFailure = {
        "type": "error",
        "error": {
            "type": kind or ("invalid_request_error" if answer.status < 500 else "api_error"),
            "message": message,
        },
    }
    if detail["param"] == "thread":
        failure["error"]["details"] = {"error_code": "thread_unsupported_request"}
    return failure if request_id is None else {**failure, "request_id": request_id}


def _tokens(prompt: int, cached: int, output: int) -> MessageUsage:
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    }


def _call_id(chats: str) -> str:
    return f"toolu_{chats.removeprefix('call_')}"


def _arguments(text: str) -> dict[str, object]:
    """A call's arguments; of those that were cut what came of them, as Anthropic's clients read a stream.

    Numbers that JSON does not have are null.
    """
    try:
        found = _finite(from_json(text or "{}", allow_partial=True))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
