"""The batcher against a verifier that is driven by hand: what travels together, what is staged, what is retried."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from actors.messages import VerifyCall, VerifyReply
from outrider.contracts.cost import CostModel, LinearCostModel, VerifyCost
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    Block,
    KvUsage,
    OpenGeneration,
    Outcome,
    Refused,
    Resolution,
    Stale,
    Unfinished,
    Verified,
)
from outrider.costs.estimator import OnlineEstimator
from outrider.rounds.account import VerifyTerms
from outrider.rounds.events import VerifyResult
from outrider.rounds.states import RoundEvent
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, BatchPlan, PendingVerification, SchedulingPolicy, StopReason
from serve_app.coordination.batcher import Batcher, Planning
from serve_app.coordination.statistics import BatchRecord
from tests.unit.serve_app.coordination.in_memory import until
from tests.unit.virtual_clock import now_s, on_loop

USAGE = KvUsage(16, 10, 0, 0, 0, 0)


class HandDrivenVerifier:
    """Keeps every call until the test answers it."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[VerifyCall, asyncio.Future[VerifyReply]]] = asyncio.Queue()

    async def verify(self, call: VerifyCall) -> VerifyReply:
        answer: asyncio.Future[VerifyReply] = asyncio.get_running_loop().create_future()
        await self.calls.put((call, answer))
        return await answer


def reply(
    outcomes: list[Outcome], refused: dict[str, str] | None = None, computed: tuple[VerifyCost, ...] | None = None
) -> VerifyReply:
    done = (VerifyCost(3, 10),) * len(outcomes) if computed is None else computed
    return VerifyReply(tuple(outcomes), refused or {}, 0.5, 0.25, 0.0, USAGE, done)


def block(name: str, number: int = 0) -> Block:
    return Block(name, number, 10, 0, draft=(1, 2))


def verified(b: Block) -> Verified:
    return Verified(b.generation, b.round, (), 7)


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
    planning = Planning(policy or Fcfs(), LIMITS, block_tokens)
    estimator = OnlineEstimator(model or LinearCostModel(0.0, 0.0, 0.0, predicted_s))
    return Batcher(verifier.verify, planning, estimator, observe, now_s), verifier


def submit(
    batcher: Batcher,
    b: Block,
    opening: OpenGeneration | None = None,
    events: list[RoundEvent] | None = None,
    cost: VerifyCost = VerifyCost(3, 10),  # noqa: B008 (frozen)
) -> asyncio.Task[VerifyResult]:
    observe = (events if events is not None else []).append
    return asyncio.create_task(batcher.verify(b, cost, opening, observe))


@on_loop
async def test_blocks_that_arrive_while_a_batch_runs_travel_together() -> None:
    batcher, verifier = make()
    first = submit(batcher, block("a"))
    call, answer = await verifier.calls.get()
    assert call.blocks == (block("a"),)
    later = [submit(batcher, block("b"))]
    with pytest.raises(TimeoutError):  # nothing is staged long before the running batch is expected to end
        await asyncio.wait_for(verifier.calls.get(), 99.9)
    later.append(submit(batcher, block("c")))
    answer.set_result(reply([verified(block("a"))]))
    assert (await first).outcome == verified(block("a"))
    call, answer = await verifier.calls.get()
    assert call.blocks == (block("b"), block("c"))
    answer.set_result(reply([verified(block("b")), verified(block("c"))]))
    assert [(await task).outcome.generation for task in later] == ["b", "c"]


@on_loop
async def test_the_next_batch_is_staged_when_the_running_one_should_end_and_no_third() -> None:
    batcher, verifier = make(predicted_s=1e-6)
    submit(batcher, block("a"))
    first_call, first_answer = await verifier.calls.get()
    submit(batcher, block("b"))
    second_call, _ = await verifier.calls.get()
    assert (first_call.blocks, second_call.blocks) == ((block("a"),), (block("b"),))
    submit(batcher, block("c"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(verifier.calls.get(), 60.0)
    first_answer.set_result(reply([verified(block("a"))]))
    third_call, _ = await verifier.calls.get()
    assert third_call.blocks == (block("c"),)


@on_loop
async def test_unfinished_blocks_go_back_into_the_queue_without_their_opening() -> None:
    batcher, verifier = make()
    events: list[RoundEvent] = []
    opening = OpenGeneration("a", (1,) * 10, SamplingParams())
    task = submit(batcher, block("a"), opening, events)
    call, answer = await verifier.calls.get()
    assert call.openings == (opening,)
    answer.set_result(reply([Unfinished("a", 0, 5)]))
    call, answer = await verifier.calls.get()
    assert (call.openings, call.blocks) == ((), (block("a"),))
    answer.set_result(reply([verified(block("a"))]))
    result = await task
    assert result.verify_s == 1.0, "both passes count"
    assert result.queue_s >= 0.5
    assert events == [RoundEvent.DISPATCHED, RoundEvent.UNFINISHED, RoundEvent.DISPATCHED]


@on_loop
async def test_an_opening_that_is_refused_refuses_its_block_only() -> None:
    batcher, verifier = make()
    submit(batcher, block("warm-up"))
    _, answer = await verifier.calls.get()
    tasks = [submit(batcher, block(name)) for name in "ab"]
    await asyncio.sleep(0)
    answer.set_result(reply([verified(block("warm-up"))]))
    _, answer = await verifier.calls.get()
    answer.set_result(reply([verified(block("a")), verified(block("b"))], {"a": "too long"}))
    assert (await tasks[0]).outcome == Refused("a", 0, "too long")
    assert (await tasks[1]).outcome == verified(block("b"))


class DiesOnce(HandDrivenVerifier):
    """Loses the first call."""

    died = False

    async def verify(self, call: VerifyCall) -> VerifyReply:
        """As it says."""
        if self.died:
            return await super().verify(call)
        self.died = True
        raise VerifierLostError("gone")


@on_loop
async def test_a_lost_verifier_is_told_to_every_member_and_the_batcher_goes_on() -> None:
    records: list[BatchRecord] = []
    batcher, verifier = make(records=records, verifier=DiesOnce())
    tasks = [submit(batcher, block(name)) for name in "ab"]
    for task in tasks:
        with pytest.raises(VerifierLostError, match="gone"):
            await task
    again = submit(batcher, block("a", 1))
    _, answer = await verifier.calls.get()
    answer.set_result(reply([verified(block("a", 1))]))
    assert (await again).outcome == verified(block("a", 1))
    assert len(records) == 1, "a call that never came back is no batch"


@on_loop
async def test_a_cancelled_block_leaves_the_queue_and_is_not_retried() -> None:
    batcher, verifier = make()
    running = submit(batcher, block("a"))
    _, answer = await verifier.calls.get()
    queued = submit(batcher, block("b"))
    await asyncio.sleep(0)
    assert batcher.queued_blocks == 1
    queued.cancel()
    running.cancel()
    await asyncio.gather(queued, running, return_exceptions=True)
    answer.set_result(reply([Unfinished("a", 0, 5)]))
    await asyncio.sleep(0.01)
    assert batcher.queued_blocks == 0
    assert verifier.calls.empty()


STATES = np.zeros((1, 2), np.float32)


@on_loop
async def test_resolutions_travel_at_once_to_an_idle_verifier_and_else_with_the_next_batch() -> None:
    batcher, verifier = make(predicted_s=10.0)
    alone = asyncio.create_task(batcher.resolve(Resolution("a", 3, STATES)))
    call, answer = await verifier.calls.get()
    assert (call.blocks, call.resolutions, now_s()) == ((), (Resolution("a", 3, STATES),), 0.0)
    answer.set_result(reply([Verified("a", 3, (0,), 7)], computed=()))
    assert await alone == VerifyResult(Verified("a", 3, (0,), 7), 0.25, 0.5)
    running = submit(batcher, block("b"))
    _, first = await verifier.calls.get()
    tasks = [asyncio.create_task(batcher.resolve(Resolution("a", 4, None))), submit(batcher, block("c"))]
    call, answer = await verifier.calls.get()
    assert (call.blocks, call.resolutions) == ((block("c"),), (Resolution("a", 4, None),))
    assert now_s() > 9.0, "it could not be applied earlier"
    first.set_result(reply([verified(block("b"))]))
    answer.set_result(reply([verified(block("c")), Stale("a", 4)]))
    assert [(await task).outcome for task in (running, *tasks)] == [
        verified(block("b")),
        Stale("a", 4),
        verified(block("c")),
    ]


@on_loop
async def test_a_resolution_is_lost_with_its_verifier() -> None:
    batcher, _ = make(verifier=DiesOnce())
    with pytest.raises(VerifierLostError, match="gone"):
        await batcher.resolve(Resolution("a", 0, STATES))


@on_loop
async def test_closings_travel_with_the_next_batch_or_soon_by_themselves() -> None:
    batcher, verifier = make()
    batcher.close("gone", keep_cache=False)
    submit(batcher, block("a"))
    call, answer = await verifier.calls.get()
    assert [c.generation for c in call.closings] == ["gone"]
    answer.set_result(reply([verified(block("a"))]))
    batcher.close("a", keep_cache=True)
    call, answer = await verifier.calls.get()
    assert (call.blocks, [(c.generation, c.keep_cache) for c in call.closings]) == ((), [("a", True)])
    answer.set_result(reply([]))


@on_loop
async def test_every_call_that_comes_back_is_told_with_its_prediction_and_why_it_stopped_growing() -> None:
    records: list[BatchRecord] = []
    batcher, verifier = make(predicted_s=7.0, records=records)
    tasks = [submit(batcher, block("a"))]
    _, answer = await verifier.calls.get()
    tasks += [submit(batcher, block(name)) for name in "bcdefg"]
    await asyncio.sleep(0)
    answer.set_result(reply([verified(block("a"))]))
    for names in ("bcde", "fg"):
        call, answer = await verifier.calls.get()
        assert [b.generation for b in call.blocks] == list(names)
        answer.set_result(reply([verified(block(name)) for name in names]))
    await asyncio.gather(*tasks)
    batcher.close("a", keep_cache=True)
    _, answer = await verifier.calls.get()
    usage = KvUsage(16, 10, 1, 2, 0, 5)
    answer.set_result(VerifyReply((), {}, 0.0, 0.0, 3.0, usage, ()))
    await until(lambda: len(records) == 4)
    full, empty = StopReason.MAX_BLOCKS, StopReason.QUEUE_EMPTY
    assert [(record.blocks, record.reason) for record in records] == [(1, empty), (4, full), (2, empty), (0, empty)]
    assert [record.engine_s for record in records] == [0.5, 0.5, 0.5, 0.0]
    assert records[0].predicted_s == 7.0
    assert [record.predicted_s for record in records[1:3]] == pytest.approx([0.5, 0.5], rel=1e-2), (
        "batches correct the prediction"
    )
    assert (records[3].idle_s, records[3].usage) == (3.0, usage)


class Asked(Fcfs):
    """First come, first served; keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[PendingVerification, ...], BatchLimits]] = []

    def plan(
        self, pending: Sequence[PendingVerification], now_s: float, limits: BatchLimits, cost_model: CostModel
    ) -> BatchPlan:
        """Keep and plan."""
        self.calls.append((tuple(pending), limits))
        return super().plan(pending, now_s, limits, cost_model)


@on_loop
async def test_the_policy_is_told_what_each_block_is_owed_and_how_much_memory_there_is() -> None:
    batcher, verifier = make(policy=(policy := Asked()), block_tokens=4)
    terms = VerifyTerms(deadline_at_s=123.5, expected_tokens=2.5, tokens_per_s=8.0)
    tasks = [asyncio.create_task(batcher.verify(block("a"), VerifyCost(3, 10), None, lambda _: None, terms))]
    _, answer = await verifier.calls.get()
    answer.set_result(reply([Unfinished("a", 0, 2)]))
    _, answer = await verifier.calls.get()
    tasks.append(submit(batcher, block("b")))
    answer.set_result(reply([verified(block("a"))]))
    _, answer = await verifier.calls.get()
    answer.set_result(reply([verified(block("b"))]))
    await asyncio.gather(*tasks)
    ((first,), before), ((again,), after), ((second,), _) = policy.calls
    assert (first.deadline_at_s, first.expected_tokens, first.tokens_per_s) == (123.5, 2.5, 8.0)
    assert first.memory_blocks == 4, "of 13 positions"
    assert (again.deadline_at_s, again.expected_tokens, again.tokens_per_s) == (123.5, 2.5, 8.0)
    assert (again.arrived_at_s, again.memory_blocks) == (first.arrived_at_s, 4)
    assert (second.deadline_at_s, second.tokens_per_s) == (float("inf"), 0.0), "nothing was promised"
    assert (before.max_memory_blocks, after.max_memory_blocks) == (None, USAGE.total_blocks), "the reply tells"


@on_loop
async def test_the_estimator_learns_from_what_a_pass_computed_not_from_what_was_foreseen() -> None:
    """A prompt that is in the prefix cache, or a chunk that others took, costs next to nothing."""
    taught = []
    for computed in ((), (VerifyCost(1, 30),), (VerifyCost(16, 0),)):
        start = LinearCostModel(0.1, 0.0, 0.0, 0.4)
        batcher, verifier = make(model=start)
        task = submit(batcher, block("a"), cost=VerifyCost(31, 0))
        _, answer = await verifier.calls.get()
        answer.set_result(reply([verified(block("a"))], computed=computed))
        await task
        taught.append(batcher.cost_model)
        assert batcher.cost_model == OnlineEstimator(start).observed(computed, 0.5).model
    nothing, little, chunk = taught
    assert nothing == LinearCostModel(0.1, 0.0, 0.0, 0.4)
    one_row = [VerifyCost(1, 30)]
    assert little.predict_s(one_row) == pytest.approx(0.5, rel=0.05)
    assert chunk.predict_s(one_row) < 0.7 * little.predict_s(one_row), "the same time, taken for that of sixteen rows"


@on_loop
async def test_cold_blocks_of_a_batch_share_one_chunk_in_its_prediction() -> None:
    records: list[BatchRecord] = []
    batcher, verifier = make(records=records, model=LinearCostModel(1.0, 0.0, 0.0, 0.0))
    costs = {"a": VerifyCost(13, 0), "b": VerifyCost(30, 0), "c": VerifyCost(30, 0), "d": VerifyCost(3, 10)}
    tasks = [submit(batcher, block(name), cost=cost) for name, cost in costs.items()]
    call, answer = await verifier.calls.get()
    answer.set_result(reply([verified(b) for b in call.blocks]))
    await asyncio.gather(*tasks)
    assert records[0].predicted_s == 10 + 3 + 6 + 0 + 3, "sixteen of all prefixes, and the rows of those that are done"
