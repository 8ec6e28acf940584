"""Users in conversations with a service whose ingress uses one rule."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from cluster.local import running
from lab.bench.harness.metrics_page import total
from lab.bench.load.client import Endpoint, open_client, send, stopwatch
from lab.bench.load.plan import PlannedRequest
from lab.bench.load.report import COMPLETED, Answer
from lab.bench.routing.conversations import Conversation, Traffic, conversations, messages_of
from lab.bench.routing.figures import Run, Work, run_of
from outrider.config.schema import Config
from serve_app.app import ROUTER
from serve_app.fleet_gauges import application_fleet
from serve_app.metrics import RESUMED

RULES: Mapping[str, str] = {
    "product": ROUTER,
    "round_robin": "lab.bench.routing.rivals:RoundRobinRouter",
    "least_loaded": "lab.bench.routing.rivals:LeastLoadedRouter",
    "serve_llm": "lab.bench.routing.rivals:ServeLlmRouter",
}
_TIMEOUT_S = 600.0  # per request
_TOLD_WITHIN_S, _POLL_S = 10.0, 0.2  # coordinators report to the fleet every second
_WARM_UP, _WARM_UPS = Traffic(turns=1, systems=64, system_words=40), 5


@dataclass(frozen=True, slots=True)
class Load:
    """Number of concurrent users, and conversations of each, one after the other."""

    users: int
    conversations: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests, the same under every rule; greedy. ``tokens`` per answer."""

    traffic: Traffic
    loads: tuple[Load, ...]
    tokens: int
    seed: int


def measured(config: Config, rule: str, asked: Asked, turn: int) -> list[Run]:
    """Start a service with one of ``RULES`` and run all loads, each with words that no other load and turn has."""
    with running(config, router=RULES[rule]) as url:
        fleet = application_fleet(config.cluster.namespace)
        return asyncio.run(_runs(url, fleet, config, rule, asked, turn))


async def _runs(url: str, fleet: Any, config: Config, rule: str, asked: Asked, turn: int) -> list[Run]:
    found = []
    async with open_client(url, _TIMEOUT_S) as client:
        endpoint = Endpoint(client, config.model.public_name, counting=True, timeout_s=_TIMEOUT_S)
        before = await _warmed_up(endpoint, fleet, config.verifiers.count, asked, turn)
        resumed_before = await responses_resumed(client)
        for load in asked.loads:
            planned = conversations(asked.traffic, load.users, load.conversations, (asked.seed, load.users, turn))
            answers = await conversed(endpoint, planned, asked.tokens)
            after, resumed = await _work(fleet, before, _tokens(answers)), await responses_resumed(client)
            work = difference(before, after)
            found.append(run_of(rule, load.users, turn, answers, work, resumed - resumed_before))
            before, resumed_before = after, resumed
    return found


async def _warmed_up(endpoint: Endpoint, fleet: Any, verifiers: int, asked: Asked, turn: int) -> Mapping[str, Work]:
    """Send requests until each verifier has worked, as far as the rule uses all of them; return their work."""
    done: Mapping[str, Work] = {}
    for number in range(_WARM_UPS):
        planned = conversations(_WARM_UP, 2 * verifiers, 1, (asked.seed, 0, turn, number))
        done = await _work(fleet, done, _tokens(await conversed(endpoint, planned, asked.tokens)))
        if sum(work.tokens > 0 for work in done.values()) == verifiers:
            break
    return done


async def conversed(endpoint: Endpoint, planned: Sequence[Sequence[Conversation]], tokens: int) -> tuple[Answer, ...]:
    """Run all users at once, each turn after the answer to the one before; a conversation ends with a failure."""
    since_start_s = stopwatch()

    async def user(mine: Sequence[Conversation]) -> list[Answer]:
        return [answer for one in mine for answer in await _conversed(endpoint, one, tokens, since_start_s)]

    return tuple(answer for answers in await asyncio.gather(*map(user, planned)) for answer in answers)


async def _conversed(endpoint: Endpoint, one: Conversation, tokens: int, since_start_s: Any) -> list[Answer]:
    answers, said = list[Answer](), list[str]()
    settings = {"temperature": 0.0, "top_p": 1.0, "max_tokens": tokens, "ignore_eos": True}
    while len(said) < len(one.questions) and all(answer.outcome == COMPLETED for answer in answers):
        text = list[str]()
        body = {"messages": messages_of(one, said), **settings}
        request = PlannedRequest(since_start_s(), "/v1/chat/completions", body)
        answers.append(await send(endpoint, request, since_start_s, text.append))
        said.append("".join(text))
    return answers


def difference(before: Mapping[str, Work], after: Mapping[str, Work]) -> dict[str, Work]:
    """Each one's work in between."""
    nothing = Work(0, 0.0)
    earlier = {name: before.get(name, nothing) for name in after}
    return {
        name: Work(work.tokens - earlier[name].tokens, work.busy_s - earlier[name].busy_s)
        for name, work in after.items()
    }


async def _work(fleet: Any, before: Mapping[str, Work], tokens: int) -> dict[str, Work]:
    """Work of each coordinator so far, once they have reported ``tokens`` more in all, or at a timeout."""
    found: dict[str, Work] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(_TOLD_WITHIN_S):
            while sum(work.tokens for work in difference(before, found).values()) < max(1, tokens):
                await asyncio.sleep(_POLL_S)
                status = await fleet.status.remote()
                found = {
                    one.id: Work(one.committed_tokens, one.uptime_s - one.verifier_idle_s)
                    for one in status.coordinators
                }
    return found


async def responses_resumed(client: httpx.AsyncClient) -> int:
    """Number of responses resumed at another coordinator so far."""
    page = (await client.get("/metrics")).raise_for_status().text
    return int(total(page, RESUMED.name))


def _tokens(answers: Sequence[Answer]) -> int:
    return sum(answer.usage.output for answer in answers if answer.usage is not None)
