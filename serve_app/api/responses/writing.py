"""Writing of a Responses answer: events from a chat's chunks, or a document from the parts of a whole answer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic_core import to_json

from outrider.contracts.requests import FinishReason
from serve_app.answers import (
    AnswerExtension,
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatFinish,
    ChoiceExtension,
    CompletionUsage,
    PromptTokens,
    ToolCallDelta,
)
from serve_app.api.api_forms import AnswerFacts, server_sent, server_sent_whole
from serve_app.api.http_errors import ErrorAnswer
from serve_app.api.openai.writing.answer_parts import AnswerPart, PartKind
from serve_app.api.responses.answers import (
    FunctionCallItem,
    ItemStatus,
    ModelResponse,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ResponseFailure,
    ResponseSettings,
    ResponseUsage,
)
from serve_app.api.written import Written, encode

_PLAIN_FIELDS = 4  # of a chunk's choice: index, delta, logprobs, finish_reason
_Kind = Literal["msg", "rs", "fc"]  # beginnings of items' ids
_KINDS: Mapping[PartKind, _Kind] = {"content": "msg", "reasoning_content": "rs", "tool_calls": "fc"}
_DELTAS: Mapping[_Kind, str] = {
    "msg": "response.output_text.delta",
    "rs": "response.reasoning_text.delta",
    "fc": "response.function_call_arguments.delta",
}
_NOTHING: ChoiceExtension = {}  # what is asked for is added to the answer that has it
_NO_PROMPT: PromptTokens = {}


@dataclass(slots=True)
class _OpenItem:
    """The item that deltas add to."""

    kind: _Kind
    id: str
    index: int  # among the answer's items
    call_id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    logprobs: Written | None = None  # of its text, if they were asked for
    head: bytes = b""  # of a delta of text, up to its number

    def item(self, status: ItemStatus) -> OutputItem:
        text = "".join(self.parts)
        if self.kind == "fc":
            return call_item(self.id, self.call_id, self.name, text, status)
        begun = status == "in_progress"
        if self.kind == "rs":
            thought = reasoning_item(self.id, text, status)
            return {**thought, "content": []} if begun else thought
        said = message_item(self.id, self.text(), status)
        return {**said, "content": []} if begun else said

    def text(self) -> OutputText:
        logprobs = [] if self.logprobs is None or not self.logprobs.parts else self.logprobs.as_list
        return {"type": "output_text", "text": "".join(self.parts), "annotations": [], "logprobs": logprobs}


class ResponseWriter:
    def __init__(self, facts: AnswerFacts, settings: ResponseSettings, *, logprobs: bool) -> None:
        self._facts, self._settings, self._logprobs = facts, settings, logprobs
        self._stem = facts.id.partition("_")[2]
        self.stop_string: str | None = None  # which this API does not tell
        self._sequence = 0
        self._begun = False
        self._open: _OpenItem | None = None
        self._output: list[OutputItem] = []
        self._reason: ChatFinish | None = None
        self._held: dict[str, Any] = {}  # of chunks without an event that could tell it

    def events(self, chunk: ChatCompletionChunk) -> Iterable[bytes]:
        """A piece of a text, which most chunks are, costs no more than a chat's."""
        opened, choices = self._open, chunk["choices"]
        if opened is not None and opened.kind == "msg" and choices and not self._held:
            choice = choices[0]
            delta, text = choice["delta"], choice["delta"].get("content")
            if text and len(delta) == 1 and choice["logprobs"] is None and len(choice) == _PLAIN_FIELDS:
                opened.parts.append(text)
                self._sequence += 1
                return (b'%b%d,"delta":%b}\n\n' % (opened.head, self._sequence - 1, to_json(text)),)
        return self._events(chunk)

    def _events(self, chunk: ChatCompletionChunk) -> Iterator[bytes]:
        if not self._begun:
            yield from self._begin(chunk)
        if not chunk["choices"]:
            yield from self._end(chunk)
            return
        choice = chunk["choices"][0]
        if choice["finish_reason"] is not None:
            self._reason = choice["finish_reason"]
        if extension := extension_of(choice):
            join_extensions(self._held, extension)
        delta: Mapping[str, Any] = choice["delta"]
        if thought := delta.get("reasoning_content"):
            yield from self._opened("rs")
            yield self._delta(thought)
        text = delta.get("content")
        if text or (text is not None and choice["logprobs"] is not None):
            yield from self._opened("msg")
            yield self._delta(text, choice)
        for call in delta.get("tool_calls", ()):
            yield from self._called(call)

    def failure(self, answer: ErrorAnswer) -> Iterator[bytes]:
        error = answer.body["error"]
        if not self._begun:  # OpenAI's client takes no error before
            yield from self._begin({})
        yield self._event("error", {name: error[name] for name in ("code", "message", "param")})
        code = "rate_limit_exceeded" if answer.status == 429 else "server_error"
        failure: ResponseFailure = {"code": code, "message": error["message"]}
        yield self._event("response.failed", {"response": {**self._response("failed"), "error": failure}})

    def document(
        self, parts: Sequence[AnswerPart], reason: FinishReason, usage: CompletionUsage, extension: Mapping[str, object]
    ) -> Mapping[str, object]:
        self._reason = reason
        for part in parts or [AnswerPart("content")]:
            self._output.append(self._item_of(part))
        self._output[-1]["status"] = self._status
        return {**self._response(self._status, usage), **extension}

    def _item_of(self, part: AnswerPart) -> OutputItem:
        item_id = self._next_id(_KINDS[part.kind])
        if part.kind == "tool_calls":
            return call_item(item_id, part.call_id, part.name, part.text, "completed")
        if part.kind == "reasoning_content":
            return reasoning_item(item_id, part.text, "completed")
        text: OutputText = {
            "type": "output_text",
            "text": part.text,
            "annotations": [],
            "logprobs": part.logprobs.as_list if part.logprobs.parts else [],
        }
        return message_item(item_id, text, "completed")

    def _begin(self, chunk: Mapping[str, object]) -> Iterator[bytes]:
        self._begun = True
        prompt = {"prompt_token_ids": chunk["prompt_token_ids"]} if "prompt_token_ids" in chunk else {}
        yield self._event("response.created", {"response": self._response("in_progress"), **prompt})
        yield self._event("response.in_progress", {"response": self._response("in_progress")})

    def _end(self, chunk: ChatCompletionChunk) -> Iterator[bytes]:
        if self._open is None and not self._output:
            yield from self._opened("msg")
        status = self._status
        yield from self._closed(status)
        usage = cast("CompletionUsage", chunk.get("usage"))
        known: Mapping[str, object] = chunk
        last = {name: known[name] for name in AnswerExtension.__annotations__ if name in known}
        yield self._event(f"response.{status}", {"response": {**self._response(status, usage), **self._held, **last}})

    def _opened(self, kind: _Kind) -> Iterator[bytes]:
        """End the open item and begin one, unless it is of this kind; a call always begins one."""
        if self._open is not None and self._open.kind == kind and kind != "fc":
            return
        yield from self._closed("completed")
        logprobs = Written() if kind == "msg" and self._logprobs else None
        self._open = opened = _OpenItem(kind, self._next_id(kind), len(self._output), logprobs=logprobs)
        if kind == "msg":
            at = {"item_id": opened.id, "output_index": opened.index, "content_index": 0, "logprobs": []}
            plain = server_sent(_DELTAS[kind], {"type": _DELTAS[kind], **at, "sequence_number": 0})
            opened.head = plain.removesuffix(b"0}\n\n")
        if kind != "fc":
            yield self._item_event("added", opened, "in_progress")
            yield self._part_event("added", opened)

    def _called(self, call: ToolCallDelta) -> Iterator[bytes]:
        function = call["function"]
        if "id" in call:
            yield from self._opened("fc")
            assert self._open is not None
            self._open.call_id, self._open.name = call["id"], function.get("name", "")
            yield self._item_event("added", self._open, "in_progress")
        if function["arguments"]:
            yield self._delta(function["arguments"])

    def _delta(self, text: str, choice: ChatChunkChoice | None = None) -> bytes:
        opened = self._open
        assert opened is not None
        opened.parts.append(text)
        event: dict[str, object] = {
            "type": _DELTAS[opened.kind],
            "sequence_number": self._sequence,
            "item_id": opened.id,
            "output_index": opened.index,
        }
        if opened.kind != "fc":
            event["content_index"] = 0
        event["delta"] = text
        if opened.kind == "msg":
            reported = None if choice is None else choice["logprobs"]
            event["logprobs"] = [] if reported is None else reported["content"]
            if reported is not None and reported["content"] and opened.logprobs is not None:
                opened.logprobs.add([encode(reported["content"])[1:-1]])
        if self._held:
            event |= self._held
            self._held = {}
        self._sequence += 1
        return server_sent(_DELTAS[opened.kind], event)

    def _closed(self, status: ItemStatus) -> Iterator[bytes]:
        """End the open item, if there is one."""
        opened, self._open = self._open, None
        if opened is None:
            return
        text, at = "".join(opened.parts), {"item_id": opened.id, "output_index": opened.index}
        match opened.kind:
            case "msg":
                done = {**at, "content_index": 0, "text": text, "logprobs": opened.text()["logprobs"]}
                yield self._event("response.output_text.done", done)
            case "rs":
                yield self._event("response.reasoning_text.done", {**at, "content_index": 0, "text": text})
            case "fc":
                done = {**at, "name": opened.name, "arguments": text}
                yield self._event("response.function_call_arguments.done", done)
        if opened.kind != "fc":
            yield self._part_event("done", opened)
        yield self._item_event("done", opened, status)
        self._output.append(opened.item(status))

    def _item_event(self, what: str, opened: _OpenItem, status: ItemStatus) -> bytes:
        return self._event(f"response.output_item.{what}", {"output_index": opened.index, "item": opened.item(status)})

    def _part_event(self, what: str, opened: _OpenItem) -> bytes:
        thought: ReasoningText = {"type": "reasoning_text", "text": "".join(opened.parts)}
        part = opened.text() if opened.kind == "msg" else thought
        at = {"item_id": opened.id, "output_index": opened.index, "content_index": 0}
        return self._event(f"response.content_part.{what}", {**at, "part": part})

    def _event(self, name: str, fields: Mapping[str, object]) -> bytes:
        event = {"type": name, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return server_sent_whole(name, event)

    def _next_id(self, kind: _Kind) -> str:
        return f"{kind}_{self._stem}_{len(self._output)}"

    @property
    def _status(self) -> Literal["completed", "incomplete"]:
        return "incomplete" if self._reason == "length" else "completed"

    def _response(
        self, status: Literal["in_progress", "completed", "incomplete", "failed"], usage: CompletionUsage | None = None
    ) -> ModelResponse:
        facts = self._facts
        constants: AnswerExtension = {"system_fingerprint": facts.fingerprint} if facts.fingerprint else {}
        return {
            "id": facts.id,
            "object": "response",
            "created_at": facts.created_s,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": facts.model,
            "output": list(self._output),
            "usage": None if usage is None else response_usage(usage),
            **self._settings,
            **constants,
            **_NOTHING,
            **_NO_PROMPT,
        }


def message_item(item_id: str, text: OutputText, status: ItemStatus) -> OutputMessage:
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": [text]}


def reasoning_item(item_id: str, thought: str, status: ItemStatus) -> ReasoningItem:
    content: list[ReasoningText] = [{"type": "reasoning_text", "text": thought}]
    return {"id": item_id, "type": "reasoning", "status": status, "summary": [], "content": content}


def call_item(item_id: str, call_id: str, name: str, arguments: str, status: ItemStatus) -> FunctionCallItem:
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def response_usage(usage: CompletionUsage) -> ResponseUsage:
    """A chat's usage under the names of responses."""
    details: Mapping[str, Any] = usage["completion_tokens_details"]
    cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": details.get("reasoning_tokens") or 0},
        "total_tokens": usage["total_tokens"],
        "outrider": usage["outrider"],
    }


def extension_of(choice: Mapping[str, Any]) -> dict[str, Any]:
    """What a choice tells beyond OpenAI's fields."""
    return {name: choice[name] for name in ChoiceExtension.__annotations__ if name in choice}


def join_extensions(held: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add what a chunk tells to what is held: lists one behind the other, at any depth."""
    for name, value in more.items():
        if isinstance(value, dict):
            join_extensions(held.setdefault(name, {}), value)
        else:
            held.setdefault(name, []).extend(value)
