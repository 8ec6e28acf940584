"""The service's answer to one chat turn as data: server-sent events parsed into pieces, and what the answer cost.

Does no terminal output. Spans say who proposed a piece of text; without spans an answer is plain text.
"""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from outrider.contracts.errors import OutriderError
from outrider.contracts.requests import TextSpan, TokenOrigin

Message = Mapping[str, str]

_OURS = ("window", "protocol", "slo_class", "verification")
_ORIGINS = {origin.value: origin for origin in TokenOrigin}
_TIMEOUT = httpx.Timeout(10.0, read=600.0)  # longer than the service's own deadlines


class ChatError(OutriderError):
    """The service cannot be reached, or refuses the request."""


def body_of(options: Mapping[str, object], messages: Sequence[Message]) -> dict[str, object]:
    """Return the request of a turn; ``options`` by their fields' names, those of None are left to the service."""
    given = {name: value for name, value in options.items() if value is not None}
    return {
        **{name: value for name, value in given.items() if name not in _OURS},
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        "outrider": {"spans": True, **{name: value for name, value in given.items() if name in _OURS}},
    }


@dataclass(frozen=True, slots=True)
class ResponseCost:
    completion_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    trimmed_tokens: int  # draft tokens that were neither accepted nor rejected
    rounds: int
    sampling: Mapping[str, float] = field(default_factory=dict)  # in effect, if the service reports it


Piece = TextSpan | ResponseCost


def ask_model(client: httpx.Client, url: str) -> str:
    try:
        answer = client.get(f"{url}/v1/models", timeout=_TIMEOUT)
        if answer.is_success:
            return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise _unreachable(url, error) from error
    raise ChatError(_message_of(answer))


def ask(
    client: httpx.Client, url: str, options: Mapping[str, object], messages: Sequence[Message]
) -> Generator[Piece, None, None]:
    body = body_of(options, messages)
    try:
        with client.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=_TIMEOUT) as answer:
            if not answer.is_success:
                answer.read()
                raise ChatError(_message_of(answer))
            yield from pieces(answer.iter_lines())
    except httpx.HTTPError as error:
        raise _unreachable(url, error) from error


def pieces(lines: Iterable[str]) -> Iterator[Piece]:
    """Parse the lines of an event stream."""
    for line in lines:
        field, _, value = line.partition(":")
        if field != "data":
            continue
        if value.strip() == "[DONE]":
            return
        event = json.loads(value)
        if "error" in event:
            raise ChatError(str(event["error"]["message"]))
        for choice in event["choices"]:
            yield from _spans(choice)
        if event.get("usage"):
            yield _usage(event["usage"])
    raise ChatError("needs a complete answer, found a connection that ended in the middle of one; ask again")


def _spans(choice: Mapping[str, Any]) -> Iterator[TextSpan]:
    spans = (choice.get("outrider") or {}).get("spans")
    if spans is None:
        text = choice["delta"].get("content")
        spans = [{"text": text, "origin": TokenOrigin.VERIFIER}] if text else []
    for span in spans:
        yield TextSpan(span["text"], _ORIGINS.get(span["origin"], TokenOrigin.VERIFIER))


def _usage(usage: Mapping[str, Any]) -> ResponseCost:
    ours = usage.get("outrider") or {}
    names = ("drafted_tokens", "accepted_tokens", "trimmed_tokens", "rounds")
    drafted, accepted, trimmed, rounds = (int(ours.get(name, 0)) for name in names)
    sampling = dict(ours.get("sampling") or {})
    return ResponseCost(int(usage["completion_tokens"]), drafted, accepted, trimmed, rounds, sampling)


def _message_of(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"needs an OpenAI-style service at {answer.url}, found HTTP status {answer.status_code}"


def _unreachable(url: str, error: Exception) -> ChatError:
    return ChatError(f"needs a service at {url}, found: {error or type(error).__name__}")
