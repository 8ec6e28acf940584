"""Many generations on one verifier, in virtual time: what a policy that all of them follow makes of everybody's speed.

The verifier begins a batch as soon as blocks wait, and takes all of them, up to a limit. Acceptance is known.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from outrider.contracts.cost import VerifyCost
from outrider.contracts.drafting import DraftPlan
from outrider.scheduling.ledger import Ledger
from outrider.selection.situation import RoundChoice, SelectionPolicy, SpeedPromise, VerifierView
from tests.unit.selection.simulated_rounds import World
from tests.unit.selection.test_estimates import knowing

_AVERAGED = 0.1  # weight of the newest round or batch, as a coordinator's


@dataclass
class Device:
    """One generation without an end."""

    rng: random.Random
    ledger: Ledger
    choice: RoundChoice | None = None
    tokens: int = 0

    @property
    def plan(self) -> DraftPlan | None:
        return None if self.choice is None else self.choice.chosen.plan


@dataclass(frozen=True)
class Outcome:
    """Of the second half of the time: each device's speed, and a round's mean window."""

    tokens_per_s: tuple[float, ...]
    window: float

    @property
    def mean_tokens_per_s(self) -> float:
        return sum(self.tokens_per_s) / len(self.tokens_per_s)


class Loop:
    """The state of one run."""

    def __init__(self, policy: SelectionPolicy, world: World, fleet: list[Device], until_s: float) -> None:
        self._policy = policy
        self._world = world
        self._fleet = fleet
        self._until_s = until_s
        told = knowing(world)
        acceptance = replace(told.acceptance, deviations=np.zeros_like(told.acceptance.deviations))
        self._told = replace(told, acceptance=acceptance, protocols=("token_ids",), k_max=12)
        self._queue_s, self._blocks = 0.0, 1.0
        self.windows: list[int] = []
        self.arrivals: list[tuple[float, int]] = []
        self.waiting: deque[tuple[float, int]] = deque()

    def draft(self, n: int, now_s: float) -> None:
        """Choose the device's next round; its block arrives in time."""
        device, world = self._fleet[n], self._world
        view = VerifierView(world.model, self._queue_s, self._blocks, world.round_fixed_s)
        promise = SpeedPromise(device.ledger.tokens_per_s, device.ledger.slack_s(now_s))
        device.choice = self._policy.choose(replace(self._told, verifier=view, promise=promise), device.choice)
        own_s = world.round_fixed_s
        if device.plan is not None:
            steps_s = world.step_s * device.plan.window * device.rng.uniform(0.8, 1.2)
            own_s += steps_s + world.exchange_fixed_s + world.csi.rtt_s * device.rng.uniform(0.8, 1.2)
        if self._counts(now_s):
            self.windows.append(0 if device.plan is None else device.plan.window)
        heapq.heappush(self.arrivals, (now_s + own_s, n))

    def commit(self, n: int, now_s: float) -> None:
        """A block was verified."""
        device = self._fleet[n]
        tokens = 1 if device.plan is None else len(self._world.verdict(device.plan, device.rng)[1]) + 1
        device.ledger = device.ledger.committed(tokens, now_s)
        device.tokens += tokens * self._counts(now_s)

    def batch(self, now_s: float, max_blocks: int) -> tuple[list[int], float]:
        """Take what waits; returns its devices and its duration."""
        taken = [self.waiting.popleft() for _ in range(min(max_blocks, len(self.waiting)))]
        for arrived_at_s, _ in taken:
            self._queue_s += _AVERAGED * (now_s - arrived_at_s - self._queue_s)
        self._blocks += _AVERAGED * (len(taken) - self._blocks)
        members = [n for _, n in taken]
        plans = [self._fleet[n].plan for n in members]
        costs = [VerifyCost(1 if plan is None else plan.nodes + 1, self._world.position - 1) for plan in plans]
        return members, self._world.model.predict_s(costs)

    def _counts(self, now_s: float) -> bool:
        return now_s > self._until_s / 2


def run(
    policy: SelectionPolicy,
    world: World,
    devices: int,
    *,
    max_blocks: int = 10_000,
    promised: tuple[float, ...] = (0.0,),
    until_s: float = 30.0,
) -> Outcome:
    """All devices under one policy; promises are dealt out in turn."""
    fleet = [Device(random.Random(n), Ledger(promised[n % len(promised)])) for n in range(devices)]
    loop, running, done_at_s, now_s = Loop(policy, world, fleet, until_s), list[int](), float("inf"), 0.0
    for n in range(devices):
        loop.draft(n, 0.01 * n)
    while now_s < until_s:
        if loop.arrivals and loop.arrivals[0][0] < done_at_s:
            now_s, n = heapq.heappop(loop.arrivals)
            loop.waiting.append((now_s, n))
        else:
            now_s, done_at_s = done_at_s, float("inf")
            for n in running:
                loop.commit(n, now_s)
                loop.draft(n, now_s)
            running = []
        if loop.waiting and not running:
            running, batch_s = loop.batch(now_s, max_blocks)
            done_at_s = now_s + batch_s
    return Outcome(
        tuple(device.tokens / (until_s / 2) for device in fleet), sum(loop.windows) / max(len(loop.windows), 1)
    )
