"""Closed load: so many clients, each sending its next request when its last one is answered."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.load_client import send, streaming
from bench.load_plan import PlannedRequest
from bench.load_report import Answer
from bench.prompts import PROMPTS

_PATH = "/v1/chat/completions"
_DRAFTED, _ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"


def chats(count: int, tokens: int, session: str, extra: Mapping[str, object]) -> tuple[PlannedRequest, ...]:
    """Greedy chats of exactly ``tokens`` output tokens, the same questions in the same order each time.

    Args:
        count: how many.
        tokens: of each answer.
        session: begins every chat, so that no KV of another session's chats is met.
        extra: put into every body.
    """
    return tuple(_chat(number, tokens, session, extra) for number in range(count))


def _chat(number: int, tokens: int, session: str, extra: Mapping[str, object]) -> PlannedRequest:
    messages = [
        {"role": "system", "content": f"{session}.{number}: you are a helpful assistant."},
        {"role": "user", "content": PROMPTS[number % len(PROMPTS)]},
    ]
    body = {"messages": messages, "temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, **extra}
    return PlannedRequest(0.0, _PATH, body)


async def closed_loop(
    client: httpx.AsyncClient,
    requests: Sequence[PlannedRequest],
    model: str,
    *,
    clients: int,
    counting: bool,
    timeout_s: float,
    on_answer: Callable[[], object] = lambda: None,
) -> tuple[Answer, ...]:
    """Send all requests, ``clients`` at a time; times count from the first one."""
    started_at_s = time.perf_counter()
    waiting = iter(requests)

    def since_start_s() -> float:
        return time.perf_counter() - started_at_s

    async def work() -> list[Answer]:
        answers = []
        for request in waiting:
            due, body = replace(request, at_s=since_start_s()), streaming(request, model, counting=counting)
            answers.append(await send(client, due, body, since_start_s=since_start_s, timeout_s=timeout_s))
            on_answer()
        return answers

    found = await asyncio.gather(*(work() for _ in range(clients)))
    return tuple(answer for answers in found for answer in answers)


async def drafted_and_accepted(client: httpx.AsyncClient) -> tuple[float, float]:
    """Draft tokens of a vLLM server so far, and those accepted; zeros where it does not speculate or is no vLLM."""
    response = await client.get("/metrics")
    return read_drafted_and_accepted(response.text) if response.is_success else (0.0, 0.0)


def read_drafted_and_accepted(exposition: str) -> tuple[float, float]:
    """The same of a metrics page."""
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    drafted, accepted = (
        sum(sample.value for sample in samples if sample.name == name) for name in (_DRAFTED, _ACCEPTED)
    )
    return float(drafted), float(accepted)
