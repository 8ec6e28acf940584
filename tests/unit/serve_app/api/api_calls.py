"""The same request of each API, and the same things read from its answer."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tests.unit.serve_app.api.declared import events_in
from tests.unit.serve_app.api.text_service import MODEL

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One API.

    Attributes:
        body: a request, of one user's message, a system's, most tokens, and fields that mean the same in all.
        text: of a whole answer.
        finish: why that ended: ``stop`` or ``length``.
        tokens: of prompt and answer, as its usage says.
        piece: the text of one event; "" if it has none.
        ended: whether a stream that has these events has come to its end.
        named: fields of chats in the API's own words.
    """

    path: str
    body: Callable[[str, str | None, int], dict[str, Any]]
    text: Callable[[Json], str]
    finish: Callable[[Json], str]
    tokens: Callable[[Json], tuple[int, int]]
    piece: Callable[[Json], str]
    ended: Callable[[list[str]], bool]
    named: Callable[[Json], Json] = dict


def _chat(user: str, system: str | None, most: int) -> dict[str, Any]:
    before = [] if system is None else [{"role": "system", "content": system}]
    return {"model": MODEL, "messages": [*before, {"role": "user", "content": user}], "max_tokens": most}


def _response(user: str, system: str | None, most: int) -> dict[str, Any]:
    body = {"model": MODEL, "input": user, "max_output_tokens": most}
    return body if system is None else body | {"instructions": system}


def _message(user: str, system: str | None, most: int) -> dict[str, Any]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": user}], "max_tokens": most}
    return body if system is None else body | {"system": system}


def _as_messages_say(fields: Json) -> Json:
    own = {name: value for name, value in fields.items() if name not in ("store", "metadata")}  # OpenAI's
    if "stop" in own:
        stop = own.pop("stop")
        own["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if "user" in own:
        own["metadata"] = {"user_id": own.pop("user")}
    return own


def _prompt_of_message(usage: Json) -> int:
    return int(usage["input_tokens"]) + int(usage["cache_read_input_tokens"])


API_CALLS: Mapping[str, ApiCall] = {
    "chats": ApiCall(
        "/v1/chat/completions",
        _chat,
        text=lambda answer: str(answer["choices"][0]["message"]["content"]),
        finish=lambda answer: str(answer["choices"][0]["finish_reason"]),
        tokens=lambda answer: (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]),
        piece=lambda event: "".join(choice["delta"].get("content", "") for choice in event.get("choices", ())),
        ended=lambda events: events[-1] == "[DONE]",
    ),
    "responses": ApiCall(
        "/v1/responses",
        _response,
        text=lambda answer: "".join(part["text"] for item in answer["output"] for part in item["content"]),
        finish=lambda answer: {"completed": "stop", "incomplete": "length"}[answer["status"]],
        tokens=lambda answer: (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]),
        piece=lambda event: str(event["delta"]) if event["type"] == "response.output_text.delta" else "",
        ended=lambda events: json.loads(events[-1])["type"] in ("response.completed", "response.incomplete"),
    ),
    "messages": ApiCall(
        "/v1/messages",
        _message,
        text=lambda answer: "".join(block["text"] for block in answer["content"]),
        finish=lambda answer: {"max_tokens": "length"}.get(answer["stop_reason"], "stop"),
        tokens=lambda answer: (_prompt_of_message(answer["usage"]), answer["usage"]["output_tokens"]),
        piece=lambda event: str(event.get("delta", {}).get("text", "")),
        ended=lambda events: json.loads(events[-1])["type"] == "message_stop",
        named=_as_messages_say,
    ),
}


def text_of(call: ApiCall, response: httpx.Response) -> str:
    """The text of an answer, whole or streamed to its end."""
    assert response.status_code == 200, response.text
    if not response.headers["content-type"].startswith("text/event-stream"):
        return call.text(response.json())
    events = list(events_in(response.text))
    assert call.ended(events), events[-1]
    return "".join(call.piece(json.loads(event)) for event in events if event != "[DONE]")
