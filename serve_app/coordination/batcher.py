"""The batcher: blocks wait here for the verifier; a pure policy picks each batch; one call per batch.

While a batch runs the next one is planned and staged: it is sent shortly before the running one is expected to end, so
that the verifier goes from one to the other without a gap, yet as late as possible, so that blocks which arrive in the
meantime still join. At most two calls are under way.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any

from actors.messages import Closing, VerifyCall, VerifyReply
from outrider.contracts.chunks import pass_costs
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block, OpenGeneration, Outcome, Refused, Resolution, Unfinished
from outrider.costs.estimator import OnlineEstimator
from outrider.rounds.account import VerifyTerms
from outrider.rounds.blocks import block_tokens
from outrider.rounds.events import VerifyResult
from outrider.rounds.states import RoundEvent
from outrider.scheduling.policy import BatchLimits, PendingVerification, SchedulingPolicy, StopReason
from serve_app.coordination.statistics import BatchRecord

_MOST_FLIGHTS = 2
_STAGE_LEAD_S = 0.005  # a staged call takes about 2 ms to reach the verifier; the rest is for a wrong prediction
_IDLE_CLOSING_S = 0.05  # how long a closing waits for a batch to travel with
_NO_TERMS = VerifyTerms()


@dataclass(frozen=True, slots=True)
class Planning:
    """How batches are planned.

    Attributes:
        limits: of a batch; how much memory there is, the verifier tells with its first reply.
        block_tokens: positions per KV block.
    """

    policy: SchedulingPolicy
    limits: BatchLimits
    block_tokens: int = 16


@dataclass(slots=True, eq=False)
class _Awaited:
    """What somebody waits for the outcome of."""

    result: asyncio.Future[VerifyResult]
    queued_at_s: float
    queue_s: float = 0.0
    verify_s: float = 0.0

    def sent(self, now_s: float) -> None:
        """It is in a call."""
        self.queue_s += now_s - self.queued_at_s

    def replied(self, reply: VerifyReply) -> None:
        """Its call came back."""
        self.queue_s += reply.waited_s
        self.verify_s += reply.engine_s

    def settle(self, outcome: Outcome) -> None:
        """Tell who waits."""
        if not self.result.done():
            self.result.set_result(VerifyResult(outcome, self.queue_s, self.verify_s))

    def fail(self, error: Exception) -> None:
        """Tell who waits."""
        if not self.result.done():
            self.result.set_exception(error)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A block in the queue."""

    block: Block
    opening: OpenGeneration | None
    pending: PendingVerification
    observe: Callable[[RoundEvent], object]
    awaited: _Awaited


@dataclass(slots=True, eq=False)
class _Flight:
    """A call under way."""

    members: list[_Waiting]
    resolutions: list[_Awaited]
    reason: StopReason
    predicted_s: float
    expected_end_at_s: float
    task: asyncio.Task[None] = field(init=False)


class Batcher:
    """Owns the queue of one verifier. All methods run on the coordinator's event loop."""

    def __init__(
        self,
        send: Callable[[VerifyCall], Coroutine[Any, Any, VerifyReply]],
        planning: Planning,
        estimator: OnlineEstimator,
        observe: Callable[[BatchRecord], None],
        clock: Callable[[], float],
    ) -> None:
        """Start empty.

        Args:
            send: makes one verifier call; it raises ``VerifierLostError``, by its own deadline at the latest.
            planning: of the batches.
            estimator: of a batch's time; corrected by every batch.
            observe: told of every call that came back.
            clock: monotonic, in seconds.
        """
        self._send = send
        self._planning, self._limits = planning, planning.limits
        self._estimator = estimator
        self._observe = observe
        self._clock = clock
        self._queue: dict[tuple[GenerationId, int], _Waiting] = {}
        self._resolutions: dict[GenerationId, tuple[Resolution, _Awaited]] = {}
        self._closings: dict[GenerationId, Closing] = {}
        self._unheard: tuple[Closing, ...] = ()  # of calls that failed
        self._flights: list[_Flight] = []
        self._wake = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None

    @property
    def queued_blocks(self) -> int:
        """Blocks that wait for a batch."""
        return len(self._queue)

    @property
    def cost_model(self) -> LinearCostModel:
        """As corrected by every batch so far."""
        return self._estimator.model

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return not self._flights

    async def verify(
        self,
        block: Block,
        cost: VerifyCost,
        opening: OpenGeneration | None,
        observe: Callable[[RoundEvent], object],
        terms: VerifyTerms = _NO_TERMS,
    ) -> VerifyResult:
        """Have one block verified, over as many passes as its prefix needs.

        ``observe`` is told when the block joins a batch (DISPATCHED) and when it comes back UNFINISHED.

        Raises:
            VerifierLostError: the verifier died or hung; nothing of this round is committed.
        """
        now_s = self._clock()
        pending = PendingVerification(
            generation=block.generation,
            round=block.round,
            arrived_at_s=now_s,
            deadline_at_s=terms.deadline_at_s,
            expected_tokens=terms.expected_tokens,
            cost=cost,
            tokens_per_s=terms.tokens_per_s,
            memory_blocks=ceil((cost.new_tokens + cost.cached_tokens) / self._planning.block_tokens),
        )
        waiting = _Waiting(block, opening, pending, observe, self._awaited(now_s))
        key = (block.generation, block.round)
        self._queue[key] = waiting
        self._notify()
        try:
            return await waiting.awaited.result
        finally:
            self._queue.pop(key, None)

    async def resolve(self, resolution: Resolution) -> VerifyResult:
        """Give the verifier the second half of a round, with the next call or by itself: it runs nothing.

        Raises:
            VerifierLostError: as ``verify``.
        """
        awaited = self._awaited(self._clock())
        self._resolutions[resolution.generation] = resolution, awaited
        self._notify()
        try:
            return await awaited.result
        finally:
            self._resolutions.pop(resolution.generation, None)

    def _awaited(self, now_s: float) -> _Awaited:
        return _Awaited(asyncio.get_running_loop().create_future(), now_s)

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Have the verifier forget a generation, with the next batch or soon."""
        self._closings[generation] = Closing(generation, keep_cache)
        self._notify()

    def _notify(self) -> None:
        self._wake.set()
        if self._runner is None or self._runner.done():
            self._runner = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._queue or self._resolutions or self._closings:
            if len(self._flights) >= _MOST_FLIGHTS:
                await self._woken_within(inf)
            elif not (self._queue or self._resolutions) and not await self._woken_within(_IDLE_CLOSING_S):
                self._dispatch([], StopReason.QUEUE_EMPTY)
            elif (until_staging_s := self._until_staging_s()) > 0.0:
                await self._woken_within(until_staging_s)
            elif self._queue or self._resolutions:
                self._dispatch(*(self._plan() if self._queue else ([], StopReason.QUEUE_EMPTY)))
            await asyncio.sleep(0)

    def _until_staging_s(self) -> float:
        """Seconds until the next batch should be sent."""
        return self._flights[0].expected_end_at_s - _STAGE_LEAD_S - self._clock() if self._flights else 0.0

    async def _woken_within(self, timeout_s: float) -> bool:
        self._wake.clear()
        try:
            async with asyncio.timeout(None if timeout_s == inf else max(0.0, timeout_s)):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _plan(self) -> tuple[list[_Waiting], StopReason]:
        pending = [waiting.pending for waiting in self._queue.values()]
        plan = self._planning.policy.plan(pending, self._clock(), self._limits, self.cost_model)
        return [self._queue[p.generation, p.round] for p in plan.batch], plan.reason

    def _dispatch(self, members: list[_Waiting], reason: StopReason) -> None:
        now_s = self._clock()
        own_rows = ((member.pending.cost, len(member.block.draft) + 1) for member in members)
        predicted_s = self.cost_model.predict_s(pass_costs(own_rows, self._limits.prefill_chunk_tokens))
        for member in members:
            del self._queue[member.block.generation, member.block.round]
            member.awaited.sent(now_s)
            member.observe(RoundEvent.DISPATCHED)
        resolutions = [*self._resolutions.values()]
        for _, awaited in resolutions:
            awaited.sent(now_s)
        call = VerifyCall(
            closings=(*self._unheard, *self._closings.values()),
            openings=tuple(member.opening for member in members if member.opening is not None),
            blocks=tuple(member.block for member in members),
            resolutions=tuple(resolution for resolution, _ in resolutions),
        )
        self._unheard, self._closings, self._resolutions = (), {}, {}
        starts_at_s = max([now_s, *(flight.expected_end_at_s for flight in self._flights)])
        awaited_resolutions = [awaited for _, awaited in resolutions]
        flight = _Flight(members, awaited_resolutions, reason, predicted_s, starts_at_s + predicted_s)
        self._flights.append(flight)
        flight.task = asyncio.get_running_loop().create_task(self._fly(flight, call))

    async def _fly(self, flight: _Flight, call: VerifyCall) -> None:
        try:
            reply = await self._send(call)
            self._settle(flight, call, reply)
        except Exception as error:  # noqa: BLE001 (whatever went wrong, nobody may wait for it for ever)
            self._unheard += call.closings  # lost, unless the verifier was: told again with the next batch
            for awaited in (*(member.awaited for member in flight.members), *flight.resolutions):
                awaited.fail(error)
        finally:
            self._flights.remove(flight)
            self._notify()

    def _settle(self, flight: _Flight, call: VerifyCall, reply: VerifyReply) -> None:
        self._observe(
            BatchRecord(len(call.blocks), flight.reason, flight.predicted_s, reply.engine_s, reply.idle_s, reply.usage)
        )
        self._estimator = self._estimator.observed(reply.computed, reply.engine_s)
        self._limits = replace(self._limits, max_memory_blocks=reply.usage.total_blocks)
        blocks = len(flight.members)
        for member, outcome in zip(flight.members, reply.outcomes[:blocks], strict=True):
            member.awaited.replied(reply)
            self._settle_block(member, outcome, reply.refused_openings)
        for awaited, outcome in zip(flight.resolutions, reply.outcomes[blocks:], strict=True):
            awaited.replied(reply)
            awaited.settle(outcome)

    def _settle_block(self, member: _Waiting, outcome: Outcome, refused: Mapping[GenerationId, str]) -> None:
        name, number = member.block.generation, member.block.round
        if name in refused:
            member.awaited.settle(Refused(name, number, refused[name]))
        elif not isinstance(outcome, Unfinished):
            member.awaited.settle(outcome)
        elif not member.awaited.result.done():
            cost = VerifyCost(outcome.remaining_tokens, block_tokens(member.block) - outcome.remaining_tokens)
            member.pending = replace(member.pending, cost=cost)
            member.opening = None
            member.awaited.queued_at_s = self._clock()
            member.observe(RoundEvent.UNFINISHED)
            self._queue[name, number] = member
