"""Clients that stream several responses at once, greedy and seeded, and what they got."""

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import httpx

from tests.cluster.prompts import CHATS
from tests.cluster.served import MODEL, PLAIN

TOKENS = 60
CLIENTS = 6
_ACT_AFTER_EVENTS = 8


@dataclass(frozen=True)
class Streamed:
    """One response as its client saw it."""

    text: str
    token_logprobs: tuple[float, ...]  # rounded: one per token, so that a lost or doubled token shows
    usage: dict[str, Any]
    longest_gap_s: float = 0.0  # between two events; what a loss costs, to be reported, and no test's business


def body(i: int, tokens: int = TOKENS) -> dict[str, object]:
    """The request of client ``i``: every other one samples."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": CHATS[i % len(CHATS)]}],
        "max_tokens": tokens,
        "temperature": 0.8 * (i % 2),
        "top_p": 1.0,
        "seed": i,
        "ignore_eos": True,
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def stream(url: str, request: dict[str, object], at_event: Callable[[int], None] = lambda _: None) -> Streamed:
    """Stream one chat to its end; ``at_event`` is told the number of each event."""
    events: list[Any] = []
    at_s: list[float] = []
    line = ""
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=request, timeout=400, verify=PLAIN) as response:
        assert response.status_code == httpx.codes.OK, response.read()
        for line in filter(None, response.iter_lines()):
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
                assert "error" not in events[-1], events[-1]
                at_s.append(time.monotonic())
                at_event(len(events))
    assert line == "data: [DONE]"
    choices = [event["choices"][0] for event in events if event["choices"]]
    assert choices[0]["delta"]["role"] == "assistant"
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    entries = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    return Streamed(
        text="".join(choice["delta"].get("content", "") for choice in choices),
        token_logprobs=tuple(round(entry["logprob"], 2) for entry in entries),
        usage=events[-1]["usage"],
        longest_gap_s=max(later_s - earlier_s for earlier_s, later_s in pairwise(at_s)),
    )


def streams(
    url: str,
    act: Callable[[], object] = lambda: None,
    clients: int = CLIENTS,
    tokens: int = TOKENS,
    options: Mapping[str, object] = MappingProxyType({}),
) -> list[Streamed]:
    """Several responses at once; ``act`` runs when the first of them is under way, ``options`` go into each request."""
    acted = []

    def maybe_act(events: int) -> None:
        if events == _ACT_AFTER_EVENTS:
            act()
            acted.append(True)

    with ThreadPoolExecutor(clients) as pool:
        first, *others = ({**body(i, tokens), **options} for i in range(clients))
        asked = [pool.submit(stream, url, first, maybe_act), *(pool.submit(stream, url, other) for other in others)]
        responses = [future.result() for future in asked]
    assert acted, "the response ended before anything could happen to it"
    for response in responses:
        assert response.usage["completion_tokens"] == len(response.token_logprobs) == tokens
    return responses


def told(responses: list[Streamed]) -> list[tuple[str, tuple[float, ...]]]:
    """What may not differ between two runs."""
    return [(response.text, response.token_logprobs) for response in responses]


def begins(short: list[Streamed], whole: list[Streamed]) -> bool:
    """Whether these are the beginnings of the responses to the same requests for more tokens."""
    return all(
        long.text.startswith(brief.text) and long.token_logprobs[: len(brief.token_logprobs)] == brief.token_logprobs
        for brief, long in zip(short, whole, strict=True)
    )
