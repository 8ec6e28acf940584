"""Goodput of whole services under the same closed load, one server at a time.

Servers are started anew in every repeat, in another order each time. An arm that fails is reported as such and the
others go on.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from bench.engines.clients import chats, drafted_and_accepted
from bench.harness.samples import Sample, rotated
from bench.harness.server import Arm, Server, ServerFailedError, started
from bench.load.client import ServiceUnusableError, closed_loop, endpoint_of, open_client, served_model
from bench.load.report import COMPLETED, Answer, request_tokens_per_s, request_tpot_s, summarise

_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Load:
    """What every arm is asked."""

    clients: tuple[int, ...]  # numbers of them, one after another
    requests: int  # at least so many for each number, and one for each client
    tokens: int  # of every answer
    timeout_s: float = 300.0  # of one request

    def count(self, clients: int) -> int:
        """Requests at this number of clients."""
        return max(self.requests, clients)


def measured(servers: Sequence[Server], load: Load, repeats: int, on_cell: Callable[[str], object]) -> Iterator[Sample]:
    """All samples by number of clients, server by server; ``on_cell`` gets the arm after each."""
    with TemporaryDirectory(prefix="outrider-engines-") as scratch:
        for repeat in range(repeats):
            for server in rotated(servers, repeat):
                yield from _of_server(server, load, repeat, Path(scratch) / "server.log", on_cell)


def _of_server(
    server: Server, load: Load, repeat: int, log: Path, on_cell: Callable[[str], object]
) -> Iterator[Sample]:
    cells = [(arm, clients) for clients in load.clients for arm in rotated(server.arms, repeat)]
    done = 0
    try:
        with started(server, log) as url:
            for arm, clients in cells:
                # Another session for every cell that this server meets: its prefix cache must not know the chats.
                yield asyncio.run(_sample(url, arm, load, clients, f"{repeat}.{done}"))
                done += 1
                on_cell(arm.name)
    except (ServerFailedError, ServiceUnusableError, httpx.HTTPError) as error:
        for arm, clients in cells[done:]:
            yield Sample(clients, arm.name, {}, str(error))
            on_cell(arm.name)


async def _sample(url: str, arm: Arm, load: Load, clients: int, session: str) -> Sample:
    """One warm-up of all clients at once, then the load."""
    async with open_client(url, load.timeout_s) as client:
        endpoint = await endpoint_of(client, await served_model(client), load.timeout_s)
        await closed_loop(endpoint, chats(clients, _WARM_UP_TOKENS, f"{session} warm-up", arm.extra), clients)
        before = await drafted_and_accepted(client)
        chatted = chats(load.count(clients), load.tokens, session, arm.extra)
        answers = await closed_loop(endpoint, chatted, clients)
        after = await drafted_and_accepted(client)
    drafted, accepted = (new - old for new, old in zip(after, before, strict=True))
    failure = next((f"{one.outcome}: {one.detail}" for one in answers if one.outcome != COMPLETED), "")
    return Sample(clients, arm.name, _values(answers, accepted / drafted if drafted else None), failure)


def _values(answers: Sequence[Answer], acceptance: float | None) -> dict[str, float]:
    """What was measured: ``tpot_ms`` is per output token after the first, as those that come together are one event.

    Args:
        answers: to all requests of one load.
        acceptance: accepted over drafted tokens as the server counts them; None where only answers say it.
    """
    summary = summarise(0.0, 0.0, answers)
    tpot_s, unanswered = request_tpot_s(answers), summary.offered - summary.completed
    found = {
        "tokens_per_s": summary.output_tokens_per_s if summary.completed else None,
        "client_tokens_per_s": request_tokens_per_s(answers),
        "ttft_ms": None if summary.ttft_s is None else 1e3 * summary.ttft_s.p50,
        "tpot_ms": None if tpot_s is None else 1e3 * tpot_s,
        "acceptance": summary.acceptance if acceptance is None else acceptance,
        "unanswered": float(unanswered),
    }
    return {name: value for name, value in found.items() if value is not None}
