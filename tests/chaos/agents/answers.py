"""Answers of three APIs as one text that all of them have alike, from their events or whole. Pure.

The text has a line in front of reasoning, of what is said and of each call. Arguments are told as they come; a whole
Message has them as an object (``with_objects``).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.agents.asks import Api

_ENDS = {"tool_calls": "stop", "end_turn": "stop", "tool_use": "stop", "max_tokens": "length"}
_CODES = {"overloaded_error": "unavailable", "timeout_error": "timeout", "rate_limit_error": "busy"}  # of Messages
_HEADS = re.compile(r"(\n\[(?:call of [^\n]*|said|thought)\]\n)")
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """What one event, or a whole answer, says."""

    text: str = ""
    names: tuple[str, ...] = ()  # its tokens' ids; Messages has none
    finish: str | None = None
    failed: bool = False
    done: bool = False  # whether nothing may follow


@dataclass(slots=True)
class Answer:
    """One answer, as it comes.

    Attributes:
        usage: tokens of the prompt, of the answer, and of reasoning.
    """

    api: Api
    usage: dict[str, int] = field(default_factory=dict)
    _kind: str = ""  # of what came last

    def event(self, data: str) -> Part:
        """Read the data of an event."""
        if data == "[DONE]":
            return Part(done=True)
        content = json.loads(data)
        if content.get("type") in ("error", "response.failed") or "error" in content:
            return Part(failed=True)
        return {Api.CHATS: self._chunk, Api.RESPONSES: self._of_response, Api.MESSAGES: self._of_message}[self.api](
            content
        )

    def whole(self, content: Json) -> Part:
        """Read an answer that is not streamed."""
        if self.api is Api.CHATS:
            (choice,) = content["choices"]
            text = "".join(self._delta(choice["message"]))
            self._count(content["usage"], "prompt_tokens", "completion_tokens")
            return Part(text, _names(choice), _end(choice["finish_reason"]))
        if self.api is Api.RESPONSES:
            text = "".join(text for item in content["output"] for text in self._item(item))
            self._count(content["usage"], "input_tokens", "output_tokens")
            return Part(text, _names(content), _status(content["status"]))
        text = "".join(text for block in content["content"] for text in self._block(block))
        self._count_message(content["usage"])
        return Part(text, finish=_end(content["stop_reason"]))

    def _said(self, kind: str, text: str) -> str:
        head = "" if not text or kind == self._kind else f"\n[{kind}]\n"
        self._kind = kind if text else self._kind
        return head + text

    def _called(self, name: str) -> str:
        self._kind = "call"
        return f"\n[call of {name}]\n"

    def _chunk(self, content: Json) -> Part:
        if content.get("usage"):
            self._count(content["usage"], "prompt_tokens", "completion_tokens")
        if not content["choices"]:
            return Part()
        (choice,) = content["choices"]
        return Part("".join(self._delta(choice["delta"])), _names(choice), _end(choice["finish_reason"]))

    def _delta(self, delta: Json) -> Iterator[str]:
        """Of a chat's delta or message."""
        yield self._said("thought", delta.get("reasoning_content") or "")
        yield self._said("said", delta.get("content") or "")
        for call in delta.get("tool_calls") or ():
            if "id" in call:
                yield self._called(call["function"]["name"])
            yield call["function"]["arguments"]

    def _of_response(self, event: Json) -> Part:
        names, text = _names(event), ""
        match event["type"]:
            case "response.output_text.delta":
                text = self._said("said", event["delta"])
            case "response.reasoning_text.delta":
                text = self._said("thought", event["delta"])
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                text = self._called(event["item"]["name"])
            case "response.function_call_arguments.delta":
                text = event["delta"]
            case "response.completed" | "response.incomplete":
                response = event["response"]
                self._count(response["usage"], "input_tokens", "output_tokens")
                return Part(names=_names(response), finish=_status(response["status"]), done=True)
        return Part(text, names)

    def _item(self, item: Json) -> Iterator[str]:
        if item["type"] == "function_call":
            yield self._called(item["name"]) + item["arguments"]
            return
        for content in item["content"]:
            yield self._said("said" if item["type"] == "message" else "thought", content["text"])

    def _of_message(self, event: Json) -> Part:
        match event["type"]:
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                return Part(self._called(event["content_block"]["name"]))
            case "content_block_delta":
                delta = event["delta"]
                text = self._said("said", delta.get("text", "")) + self._said("thought", delta.get("thinking", ""))
                return Part(text + delta.get("partial_json", ""))
            case "message_delta":
                self._count_message(event["usage"])
                return Part(finish=_end(event["delta"]["stop_reason"]))
        return Part(done=event["type"] == "message_stop")

    def _block(self, block: Json) -> Iterator[str]:
        match block["type"]:
            case "tool_use":
                yield self._called(block["name"]) + _object(block["input"])
            case "text":
                yield self._said("said", block["text"])
            case "thinking":
                yield self._said("thought", block["thinking"])

    def _count(self, usage: Json, prompt: str, answer: str) -> None:
        details = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
        self._counted(usage[prompt], usage[answer], details.get("reasoning_tokens") or 0)

    def _count_message(self, usage: Json) -> None:
        prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
        thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
        self._counted(prompt, usage["output_tokens"], thought)

    def _counted(self, prompt: int, answer: int, thought: int) -> None:
        self.usage = {"prompt_tokens": prompt, "completion_tokens": answer, "reasoning_tokens": thought}


def with_objects(text: str) -> str:
    """An answer as a whole Message tells it: of calls' arguments their value, not how they are written."""
    heads_and_parts = _HEADS.split(text)
    for i in range(1, len(heads_and_parts), 2):
        if heads_and_parts[i].startswith("\n[call of "):
            with suppress(ValueError):
                heads_and_parts[i + 1] = _object(json.loads(heads_and_parts[i + 1]))
    return "".join(heads_and_parts)


def code_of(api: Api, detail: str) -> str | None:
    """The code of an error in the API's form, in OpenAI's words; None where there is none."""
    try:
        content = json.loads(detail)
        error = content.get("response", content).get("error", content)
        kind = error["type"] if api is Api.MESSAGES else error["code"]
        return str(_CODES.get(kind, kind))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _names(content: Json) -> tuple[str, ...]:
    ids: Iterable[int] = content.get("token_ids") or ()
    return tuple(map(str, ids))


def _object(arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _end(reason: str | None) -> str | None:
    return None if reason is None else _ENDS.get(reason, reason)


def _status(status: str) -> str:
    return {"completed": "stop", "incomplete": "length"}[status]
