"""A batcher over a verifier that is driven by hand."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from actors.messages import Refusal, StepReply, VerifyCall
from outrider.contracts.cost import CostModel, LinearCostModel, VerifyCost
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.verifying import (
    AutonomousRun,
    Block,
    KvUsage,
    OpenGeneration,
    Outcome,
    Verified,
)
from outrider.costs.estimator import OnlineEstimator
from outrider.rounds.events import VerifyResult
from outrider.rounds.states import RoundEvent
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import (
    NOTHING_PROMISED,
    BatchLimits,
    BatchPlan,
    PendingVerification,
    Promised,
    SchedulingPolicy,
)
from serve_app.coordination.batching.batcher import Batcher, Planning
from serve_app.coordination.reporting.statistics import BatchRecord
from tests.unit.virtual_clock import now_s

USAGE = KvUsage(16, 10, 0, 0, 0, 0)


class HandDrivenVerifier:
    """Keeps what it is told; its steps bring what the test says."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[VerifyCall] = asyncio.Queue()
        self.hung = False
        self.session = 0  # of the last call
        self._brought: asyncio.Queue[StepReply | Exception] = asyncio.Queue()

    def give(self, call: VerifyCall) -> None:
        self.session = call.session
        self.calls.put_nowait(call)

    async def steps(self) -> AsyncGenerator[StepReply]:
        while True:
            brought = await self._brought.get()
            if isinstance(brought, Exception):
                raise brought
            yield brought

    def kill_hung(self) -> None:
        self.hung = True
        self.dies()

    def brings(
        self,
        *outcomes: Outcome,
        refused: dict[str, Refusal] | None = None,
        computed: tuple[VerifyCost, ...] | None = None,
        suspects: tuple[str, ...] = (),
        session: int | None = None,
        evicted: tuple[tuple[str, int], ...] = (),
    ) -> None:
        """A step."""
        session = self.session if session is None else session
        done = (VerifyCost(3, 10),) * len(outcomes) if computed is None else computed
        reply = StepReply(outcomes, refused or {}, 0.5, 0.0, USAGE, done, session, evicted, suspects=suspects)
        self._brought.put_nowait(reply)

    def dies(self) -> None:
        """Its steps end."""
        self._brought.put_nowait(VerifierLostError("gone"))


def block(name: str, number: int = 0) -> Block:
    return Block(name, number, 10, 0, draft=(1, 2))


def verified(b: Block) -> Verified:
    return Verified(b.generation, b.round, (), 7)


DEADLINE_S = 60.0
LIMITS = BatchLimits(max_blocks=4, max_new_tokens=100, prefill_chunk_tokens=16)


def make(
    predicted_s: float = 100.0,
    records: list[BatchRecord] | None = None,
    policy: SchedulingPolicy | None = None,
    model: LinearCostModel | None = None,
    verifier: HandDrivenVerifier | None = None,
    block_tokens: int = 16,
) -> tuple[Batcher, HandDrivenVerifier]:
    verifier, observe = verifier or HandDrivenVerifier(), (records if records is not None else []).append
    planning = Planning(policy or Fcfs(), LIMITS, block_tokens, DEADLINE_S)
    estimator = OnlineEstimator(model or LinearCostModel(0.0, 0.0, 0.0, predicted_s))
    return Batcher(verifier, planning, estimator, observe, now_s), verifier


def submit(
    batcher: Batcher,
    b: Block,
    opening: OpenGeneration | None = None,
    events: list[RoundEvent] | None = None,
    cost: VerifyCost = VerifyCost(3, 10),  # noqa: B008 (frozen)
) -> asyncio.Task[VerifyResult]:
    observe = (events if events is not None else []).append
    return asyncio.create_task(batcher.verify(b, cost, opening, observe))


async def follows(batcher: Batcher, name: str) -> VerifyResult:
    """The next round of an autonomous run."""
    sent: asyncio.Future[VerifyResult] = asyncio.get_running_loop().create_future()

    def follower(result: VerifyResult | Exception) -> bool:
        if isinstance(result, Exception):
            sent.set_exception(result)
        else:
            sent.set_result(result)
        return False

    batcher.follow(name, follower)
    return await sent


def alone(name: str, until_round: int, end_ids: frozenset[int] = frozenset()) -> Block:
    """A block whose generation may go on by itself."""
    return replace(block(name), draft=(), autonomous_run=AutonomousRun(until_round, end_ids))


class Asked(Fcfs):
    """First come, first served; keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[PendingVerification, ...], BatchLimits]] = []

    @property
    def pending(self) -> list[PendingVerification]:
        """All that it was shown, plan by plan."""
        return [one for pending, _ in self.calls for one in pending]

    @property
    def last(self) -> dict[str, PendingVerification]:
        """By generation, what it was shown last."""
        pending, _ = self.calls[-1]
        return {one.generation: one for one in pending}

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,
        limits: BatchLimits,
        cost_model: CostModel,
        promised: Promised = NOTHING_PROMISED,
    ) -> BatchPlan:
        """Keep and plan."""
        self.calls.append((tuple(pending), limits))
        return super().plan(pending, now_s, limits, cost_model, promised)


class Picky(Asked):
    """First come, first served, but for those who are not wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.unwanted = set[str]()

    def plan(
        self,
        pending: Sequence[PendingVerification],
        now_s: float,
        limits: BatchLimits,
        cost_model: CostModel,
        promised: Promised = NOTHING_PROMISED,
    ) -> BatchPlan:
        """Let all others in."""
        wanted = [one for one in pending if one.generation not in self.unwanted]
        self.calls.append((tuple(pending), limits))
        plan = Fcfs().plan(wanted, now_s, limits, cost_model, promised)
        waiting = (*plan.waiting, *(one for one in pending if one.generation in self.unwanted))
        return BatchPlan(plan.batch, waiting, plan.reason)
