"""Goodput of whole services under the same closed load: all of them run, one is loaded at a time.

They take turns cell by cell in a changing order, so that drifts of the machine affect all alike. A failing arm is
reported, and the others continue.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from prometheus_client.parser import text_string_to_metric_families

from lab.bench.harness.prompts import USUAL_SHARES, MixedPrompt, mixed
from lab.bench.harness.server import Arm, Server, ServerFailedError, started
from lab.bench.harness.statistics import Sample, rotated
from lab.bench.load.client import ServiceUnusableError, drive, endpoint_of, open_client, served_model
from lab.bench.load.plan import PlannedRequest
from lab.bench.load.report import COMPLETED, Answer, request_tokens_per_s, summarise

_PATH = "/v1/chat/completions"
_DRAFTED, _ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"


def chats(
    prompts: Sequence[MixedPrompt], tokens: int, session: str, arm: Arm, temperature: float = 0.0
) -> tuple[PlannedRequest, ...]:
    """Chats of exactly ``tokens`` output tokens, one for each prompt.

    ``session`` is the prefix of every chat, so that no server finds KV of another session. ``arm`` adds fields to every
    body; above temperature 0 all arms get the same seeds, if they take any.
    """
    return tuple(_chat(number, one, tokens, session, arm, temperature) for number, one in enumerate(prompts))


def _chat(number: int, prompt: MixedPrompt, tokens: int, session: str, arm: Arm, temperature: float) -> PlannedRequest:
    messages = [
        {"role": "system", "content": f"{session}.{number}: you are a helpful assistant."},
        {"role": "user", "content": prompt.text},
    ]
    drawn = {"seed": number} if temperature and arm.takes_seeds else {}
    settings = {"temperature": temperature, "top_p": 1.0, "max_tokens": tokens, "ignore_eos": True}
    return PlannedRequest(0.0, _PATH, {"messages": messages, **settings, **drawn, **arm.extra}, prompt.kind)


async def drafted_and_accepted(client: httpx.AsyncClient) -> tuple[float, float]:
    """Draft and accepted tokens of a vLLM server so far; zeros if it does not speculate or is not vLLM."""
    response = await client.get("/metrics")
    return read_drafted_and_accepted(response.text) if response.is_success else (0.0, 0.0)


def read_drafted_and_accepted(exposition: str) -> tuple[float, float]:
    """Read both from a metrics page."""
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    drafted, accepted = (sum(one.value for one in samples if one.name == name) for name in (_DRAFTED, _ACCEPTED))
    return float(drafted), float(accepted)


_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Load:
    clients: tuple[int, ...]  # numbers of concurrent clients
    requests: int  # of each client, one after another
    tokens: int  # of every answer
    turns: int = 1
    timeout_s: float = 300.0  # of one request
    temperature: float = 0.0  # of all requests
    shares: Mapping[str, float] = field(default_factory=lambda: USUAL_SHARES)  # of kinds of prompts


def measured(servers: Sequence[Server], load: Load, on_cell: Callable[[str], object]) -> Iterator[Sample]:
    """Yield all samples by number of clients, turn by turn; ``on_cell`` gets the arm after each."""
    with TemporaryDirectory(prefix="outrider-engines-") as scratch, ExitStack() as running:
        urls = [_started(server, Path(scratch) / f"server{i}.log", running) for i, server in enumerate(servers)]
        arms = [(arm, url) for server, url in zip(servers, urls, strict=True) for arm in server.arms]
        for clients in load.clients:
            for turn in range(load.turns):
                for place, (arm, url) in enumerate(rotated(arms, turn)):
                    yield _cell(url, arm, load, clients, turn, place)
                    on_cell(arm.name)


def _started(server: Server, log: Path, running: ExitStack) -> str | ServerFailedError:
    try:
        return running.enter_context(started(server, log))
    except ServerFailedError as error:
        return error


def _cell(url: str | ServerFailedError, arm: Arm, load: Load, clients: int, turn: int, place: int) -> Sample:
    if isinstance(url, ServerFailedError):
        return Sample(clients, arm.name, {}, str(url), turn)
    try:
        # Another session for every cell, so that no server's prefix cache has its chats.
        values, failure = asyncio.run(_values_of(url, arm, load, clients, f"{clients}.{turn}.{place}"))
    except (ServiceUnusableError, httpx.HTTPError) as error:
        return Sample(clients, arm.name, {}, str(error), turn)
    return Sample(clients, arm.name, values, failure, turn)


async def _values_of(url: str, arm: Arm, load: Load, clients: int, session: str) -> tuple[dict[str, float], str]:
    """Run a warm-up of all clients at once, then the load; return the figures, and the first failure."""
    async with open_client(url, load.timeout_s) as client:
        endpoint = await endpoint_of(client, await served_model(client), load.timeout_s)
        asked = mixed(clients * load.requests, load.shares)
        warm_up = chats(asked[:clients], _WARM_UP_TOKENS, f"{session} warm-up", arm, load.temperature)
        await drive(endpoint, warm_up, max_concurrency=clients)
        before = await drafted_and_accepted(client)
        chatted = chats(asked, load.tokens, session, arm, load.temperature)
        answers = await drive(endpoint, chatted, max_concurrency=clients)
        after = await drafted_and_accepted(client)
    drafted, accepted = (new - old for new, old in zip(after, before, strict=True))
    failure = next((f"{one.outcome}: {one.detail}" for one in answers if one.outcome != COMPLETED), "")
    return _values(answers, accepted / drafted if drafted else None), failure


def _values(answers: Sequence[Answer], acceptance: float | None) -> dict[str, float]:
    """Figures of one load. ``tpot_ms`` is per output token after the first, as tokens of one event come together.

    ``<kind>_tokens_per_s`` is that of requests of one kind, ``client_tokens_per_s`` that of any. ``acceptance`` is
    accepted over draft tokens as the server counts them; None if only answers report it.
    """
    summary = summarise(0.0, answers)
    medians_ms = {name: None if found is None else found.median for name, found in summary.latencies_ms.items()}
    found = {
        "tokens_per_s": summary.output_throughput if summary.completed else None,
        "client_tokens_per_s": request_tokens_per_s(answers),
        "ttft_ms": medians_ms["ttft"],
        "tpot_ms": medians_ms["tpot"],
        "acceptance": summary.acceptance if acceptance is None else acceptance,
        "unanswered": float(summary.failed),
    }
    for kind in dict.fromkeys(answer.kind for answer in answers):
        found[f"{kind}_tokens_per_s"] = request_tokens_per_s([answer for answer in answers if answer.kind == kind])
    return {name: value for name, value in found.items() if value is not None}
