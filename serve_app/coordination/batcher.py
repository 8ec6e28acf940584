"""The batcher: blocks wait here for the verifier; a pure policy picks each batch; one call per batch.

While a batch runs the next one is planned and staged: it is sent shortly before the running one is expected to end, so
that the verifier goes from one to the other without a gap, yet as late as possible, so that blocks which arrive in the
meantime still join. At most two calls are under way.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from actors.messages import Closing, VerifyCall, VerifyReply
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import Block, OpenGeneration, Outcome, Refused, Unfinished
from outrider.costs.estimator import OnlineEstimator
from outrider.rounds.generation import RoundEvent
from outrider.scheduling.policy import BatchLimits, PendingVerification, SchedulingPolicy, StopReason
from serve_app.coordination.round_account import VerifyTerms
from serve_app.coordination.statistics import BatchRecord

_MOST_FLIGHTS = 2
_STAGE_LEAD_S = 0.005  # a staged call takes about 2 ms to reach the verifier; the rest is for a wrong prediction
_IDLE_CLOSING_S = 0.05  # how long a closing waits for a batch to travel with
_NO_TERMS = VerifyTerms()


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """A block's final outcome and the seconds it spent waiting and being verified, over all its passes."""

    outcome: Outcome
    queue_s: float
    verify_s: float


@dataclass(slots=True, eq=False)
class _Waiting:
    """A block in the queue."""

    block: Block
    opening: OpenGeneration | None
    pending: PendingVerification
    observe: Callable[[RoundEvent], object]
    result: asyncio.Future[VerifyResult]
    queued_at_s: float
    queue_s: float = 0.0
    verify_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Flight:
    """A call under way."""

    members: list[_Waiting]
    reason: StopReason
    predicted_s: float
    expected_end_at_s: float
    task: asyncio.Task[None] = field(init=False)


class Batcher:
    """Owns the queue of one verifier. All methods run on the coordinator's event loop."""

    def __init__(
        self,
        send: Callable[[VerifyCall], Coroutine[Any, Any, VerifyReply]],
        policy: SchedulingPolicy,
        limits: BatchLimits,
        estimator: OnlineEstimator,
        observe: Callable[[BatchRecord], None],
        kv_block_tokens: int = 16,
    ) -> None:
        """Start empty.

        Args:
            send: makes one verifier call; it raises ``VerifierLostError``, by its own deadline at the latest.
            policy: plans the batches.
            limits: of a batch; how much memory there is, the verifier tells with its first reply.
            estimator: of a batch's time; corrected by every batch.
            observe: told of every call that came back.
            kv_block_tokens: positions per KV block.
        """
        self._send = send
        self._policy = policy
        self._limits = limits
        self._kv_block_tokens = kv_block_tokens
        self._estimator = estimator
        self._queue: dict[tuple[GenerationId, int], _Waiting] = {}
        self._closings: dict[GenerationId, Closing] = {}
        self._unheard: tuple[Closing, ...] = ()  # of calls that failed
        self._flights: list[_Flight] = []
        self._wake = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._observe = observe

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
        now_s = time.monotonic()
        pending = PendingVerification(
            generation=block.generation,
            round=block.round,
            arrived_at_s=now_s,
            deadline_at_s=terms.deadline_at_s,
            expected_tokens=terms.expected_tokens,
            cost=cost,
            tokens_per_s=terms.tokens_per_s,
            memory_blocks=ceil((cost.new_tokens + cost.cached_tokens) / self._kv_block_tokens),
        )
        result: asyncio.Future[VerifyResult] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(block, opening, pending, observe, result, now_s)
        key = (block.generation, block.round)
        self._queue[key] = waiting
        self._notify()
        try:
            return await waiting.result
        finally:
            self._queue.pop(key, None)

    def close(self, generation: GenerationId, *, keep_cache: bool) -> None:
        """Have the verifier forget a generation, with the next batch or soon."""
        self._closings[generation] = Closing(generation, keep_cache)
        self._notify()

    def _notify(self) -> None:
        self._wake.set()
        if self._runner is None or self._runner.done():
            self._runner = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._queue or self._closings:
            if len(self._flights) >= _MOST_FLIGHTS:
                await self._woken_within(float("inf"))
            elif not self._queue and not await self._woken_within(_IDLE_CLOSING_S):
                self._dispatch([], StopReason.QUEUE_EMPTY)
            elif self._flights and not self._time_to_stage():
                await self._woken_within(self._until_staging())
            elif self._queue:
                self._dispatch(*self._plan())
            await asyncio.sleep(0)

    def _time_to_stage(self) -> bool:
        return self._until_staging() <= 0.0

    def _until_staging(self) -> float:
        """Seconds until the next batch should be sent."""
        return self._flights[0].expected_end_at_s - _STAGE_LEAD_S - time.monotonic()

    async def _woken_within(self, timeout_s: float) -> bool:
        self._wake.clear()
        try:
            async with asyncio.timeout(None if timeout_s == float("inf") else max(0.0, timeout_s)):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _plan(self) -> tuple[list[_Waiting], StopReason]:
        now_s = time.monotonic()
        pending = [waiting.pending for waiting in self._queue.values()]
        plan = self._policy.plan(pending, now_s, self._limits, self.cost_model)
        return [self._queue[p.generation, p.round] for p in plan.batch], plan.reason

    def _dispatch(self, members: list[_Waiting], reason: StopReason) -> None:
        now_s = time.monotonic()
        costs = _pass_costs(members, self._limits.prefill_chunk_tokens)
        for member in members:
            del self._queue[member.block.generation, member.block.round]
            member.queue_s += now_s - member.queued_at_s
            member.observe(RoundEvent.DISPATCHED)
        closings = (*self._unheard, *self._closings.values())
        self._unheard, self._closings = (), {}
        call = VerifyCall(
            closings=closings,
            openings=tuple(member.opening for member in members if member.opening is not None),
            blocks=tuple(member.block for member in members),
        )
        starts_at_s = max([now_s, *(flight.expected_end_at_s for flight in self._flights)])
        predicted_s = self.cost_model.predict_s(costs)
        flight = _Flight(members, reason, predicted_s, starts_at_s + predicted_s)
        self._flights.append(flight)
        flight.task = asyncio.get_running_loop().create_task(self._fly(flight, call))

    async def _fly(self, flight: _Flight, call: VerifyCall) -> None:
        try:
            reply = await self._send(call)
            self._settle(flight, call, reply)
        except Exception as error:  # noqa: BLE001 (whatever went wrong, nobody may wait for it for ever)
            self._unheard += call.closings  # lost, unless the verifier was: told again with the next batch
            self._fail(flight.members, error)
        finally:
            self._flights.remove(flight)
            self._notify()

    def _settle(self, flight: _Flight, call: VerifyCall, reply: VerifyReply) -> None:
        self._observe(
            BatchRecord(len(call.blocks), flight.reason, flight.predicted_s, reply.engine_s, reply.idle_s, reply.usage)
        )
        self._estimator = self._estimator.observed(reply.computed, reply.engine_s)
        self._limits = replace(self._limits, max_memory_blocks=reply.usage.total_blocks)
        now_s = time.monotonic()
        for member, outcome in zip(flight.members, reply.outcomes, strict=True):
            member.queue_s += reply.waited_s
            member.verify_s += reply.engine_s
            if member.result.done():
                continue
            name = member.block.generation
            if name in reply.refused_openings:
                refused = Refused(name, member.block.round, reply.refused_openings[name])
                member.result.set_result(VerifyResult(refused, member.queue_s, member.verify_s))
            elif isinstance(outcome, Unfinished):
                cost = VerifyCost(outcome.remaining_tokens, block_tokens(member.block) - outcome.remaining_tokens)
                member.pending = replace(member.pending, cost=cost)
                member.opening = None
                member.queued_at_s = now_s
                member.observe(RoundEvent.UNFINISHED)
                self._queue[name, member.block.round] = member
            else:
                member.result.set_result(VerifyResult(outcome, member.queue_s, member.verify_s))

    def _fail(self, members: list[_Waiting], error: Exception) -> None:
        for member in members:
            if not member.result.done():
                member.result.set_exception(error)


def block_tokens(block: Block) -> int:
    """Positions a block spans, its prefix included."""
    return block.position + len(block.forced) + len(block.draft)


def _pass_costs(members: Sequence[_Waiting], chunk_tokens: int) -> list[VerifyCost]:
    """What one pass should compute: of all prefixes together a chunk, and the rows of the blocks it completes."""
    costs = []
    for member in members:
        cost = member.pending.cost
        prefix_tokens = max(0, cost.new_tokens - len(member.block.draft) - 1)
        computed = cost.new_tokens if prefix_tokens <= chunk_tokens else chunk_tokens
        chunk_tokens -= min(prefix_tokens, chunk_tokens)
        if computed:
            costs.append(VerifyCost(computed, cost.cached_tokens))
    return costs
