"""The ways to end a draft, and a cell: clients that send one request after another, the same under every arm."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import httpx
from ray import serve

from cluster.local import APP_NAME
from lab.bench.harness.prompts import mixed
from lab.bench.harness.running import answered
from lab.bench.load.client import open_client
from outrider.config.schema import Config
from outrider.drafting.stopping import STOP_KINDS
from outrider.rounds.timing import RoundTiming

NEVER = "never"


@dataclass(frozen=True, slots=True)
class Arm:
    name: str
    rule: str  # of the devices (``STOP_KINDS``)
    options: Mapping[str, object] = field(default_factory=dict)  # the request's ``outrider``


# All by protocol token_ids; none of them is a chain.
_TREES = (
    Arm("tree 2,2,1", NEVER, {"protocol": "token_ids", "window": 3, "expansion": (2, 2, 1)}),
    Arm("tree grown to 8", NEVER, {"protocol": "token_ids", "window": 4, "rows": 8}),
    Arm("own choice of trees, too", NEVER, {"protocol": "token_ids"}),
    Arm("tree grown, priced", "while_it_pays", {"protocol": "token_ids", "window": 6, "rows": 16}),
    Arm("own choice of trees, too, priced", "while_it_pays", {"protocol": "token_ids"}),
)


def arms(windows: Sequence[int], longest: int) -> tuple[Arm, ...]:
    """Fixed windows, the service's own choice, trees, each rule at the longest window; and priced choices."""
    fixed = [Arm("target alone" if not window else f"window {window}", NEVER, {"window": window}) for window in windows]
    stopping = [Arm(rule.replace("_", " "), rule, {"window": longest}) for rule in STOP_KINDS if rule != NEVER]
    own = [Arm("own choice" if rule == NEVER else "own choice, priced", rule) for rule in (NEVER, "while_it_pays")]
    return (*fixed, own[0], *_TREES[:3], *stopping, own[1], *_TREES[3:])


def served_by(config: Config, rule: str) -> Config:
    """Configuration for a rule's arms, without prompt lookup: a request that disables it does not inform the tuner."""
    groups = tuple(replace(group, stopping=replace(group.stopping, rule=rule)) for group in config.drafters)
    return replace(config, drafters=groups, speculation=replace(config.speculation, lookup_window=0))


_DEADLINE_S = 300.0
_SHARES = {"chat": 0.5, "lists": 0.25, "code": 0.25}
_HELLO, _SHORT = "Say hello to number", 8  # of a first request, which makes a drafter ready


@dataclass(frozen=True, slots=True)
class Asking:
    model: str
    protocol: str  # of the drafts
    temperature: float
    tokens: int  # of a response, upper limit
    responses: int  # per client


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm in one cell. Seconds of drafting are summed over devices."""

    arm: str
    clients: int
    repeat: int
    tokens_per_s: float
    rounds: int
    tokens_per_round: float
    sent_tokens: float  # per round with a draft, mean
    ordered_tokens: float
    accepted_fraction: float  # of verified draft tokens
    drafting_s_per_s: float
    wasted_s_per_s: float  # drafting seconds of rejected tokens, per second of the cell
    wasted_s_per_token: float  # per committed token
    round_p50_s: float


async def measure(url: str, arm: Arm, asking: Asking, clients: int, repeat: int) -> Figures:
    """Run one arm with a number of clients, until the first of them has all its answers.

    Raises:
        ServiceUnusableError: a request was refused.
    """
    coordinator = serve.get_deployment_handle("Coordinator", APP_NAME)
    prompts = [prompt.text for prompt in mixed(clients * asking.responses, _SHARES)]
    async with open_client(url, _DEADLINE_S) as http:
        await asyncio.gather(*(_ask(http, arm, asking, f"{_HELLO} {number}", _SHORT) for number in range(clients)))
        await coordinator.recent_timings.remote()
        began_at_s = time.perf_counter()
        asked = [asyncio.create_task(_ask_all(http, arm, asking, prompts[at::clients])) for at in range(clients)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        took_s = time.perf_counter() - began_at_s
        timings: list[RoundTiming] = await coordinator.recent_timings.remote()
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        for task in done:
            task.result()
    return figures(arm.name, clients, repeat, timings, took_s)


def figures(arm: str, clients: int, repeat: int, timings: Sequence[RoundTiming], took_s: float) -> Figures:
    committed = sum(timing.committed_tokens for timing in timings)
    drafted = [timing for timing in timings if timing.ordered_tokens]
    sent = sum(timing.drafted_tokens for timing in drafted)
    verified = sum(timing.drafted_tokens - timing.trimmed_tokens for timing in drafted)
    wasted_s = sum(timing.wasted_draft_s for timing in drafted)
    rounds_s = sorted(timing.total_s for timing in timings)
    return Figures(
        arm=arm,
        clients=clients,
        repeat=repeat,
        tokens_per_s=committed / took_s,
        rounds=len(timings),
        tokens_per_round=committed / max(len(timings), 1),
        sent_tokens=sent / max(len(drafted), 1),
        ordered_tokens=sum(timing.ordered_tokens for timing in drafted) / max(len(drafted), 1),
        accepted_fraction=sum(timing.accepted_tokens for timing in drafted) / max(verified, 1),
        drafting_s_per_s=sum(timing.draft_s for timing in drafted) / took_s,
        wasted_s_per_s=wasted_s / took_s,
        wasted_s_per_token=wasted_s / max(committed, 1),
        round_p50_s=rounds_s[len(rounds_s) // 2] if rounds_s else 0.0,
    )


async def _ask_all(http: httpx.AsyncClient, arm: Arm, asking: Asking, prompts: Sequence[str]) -> None:
    for prompt in prompts:
        await _ask(http, arm, asking, prompt, asking.tokens)


async def _ask(http: httpx.AsyncClient, arm: Arm, asking: Asking, prompt: str, tokens: int) -> None:
    options = {"protocol": asking.protocol, **arm.options}
    await answered(http, asking.model, prompt, options, max_tokens=tokens, temperature=asking.temperature)
