"""The batcher against a verifier that is driven by hand: what travels together, what is staged, what is retried."""

import asyncio

import pytest

from actors.messages import VerifyCall, VerifyReply
from outrider.engines.base import Block, KvUsage, OpenGeneration, Outcome, Refused, Unfinished, Verified
from outrider.errors import VerifierLostError
from outrider.generation import RoundEvent
from outrider.scheduling.cost_model import LinearCostModel, VerifyCost
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, StopReason
from outrider.types import SamplingParams
from serve_app.batcher import Batcher, VerifyResult
from serve_app.coordinator_stats import BatchRecord
from tests.unit.serve_app.in_memory import on_loop, until

USAGE = KvUsage(16, 10, 0, 0, 0, 0)


class HandDrivenVerifier:
    """Keeps every call until the test answers it."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[VerifyCall, asyncio.Future[VerifyReply]]] = asyncio.Queue()

    async def verify(self, call: VerifyCall) -> VerifyReply:
        answer: asyncio.Future[VerifyReply] = asyncio.get_running_loop().create_future()
        await self.calls.put((call, answer))
        return await answer


def reply(outcomes: list[Outcome], refused: dict[str, str] | None = None) -> VerifyReply:
    return VerifyReply(tuple(outcomes), refused or {}, 0.5, 0.25, 0.0, USAGE)


def block(name: str, number: int = 0) -> Block:
    return Block(name, number, 10, 0, draft=(1, 2))


def verified(b: Block) -> Verified:
    return Verified(b.generation, b.round, (), 7)


LIMITS = BatchLimits(max_blocks=4, max_new_tokens=100, prefill_chunk_tokens=16)


def make(predicted_s: float = 100.0, records: list[BatchRecord] | None = None) -> tuple[Batcher, HandDrivenVerifier]:
    verifier, observe = HandDrivenVerifier(), (records if records is not None else []).append
    return Batcher(verifier.verify, Fcfs(), LIMITS, LinearCostModel(0.0, 0.0, 0.0, predicted_s), observe), verifier


def submit(
    batcher: Batcher, b: Block, opening: OpenGeneration | None = None, events: list[RoundEvent] | None = None
) -> asyncio.Task[VerifyResult]:
    observe = (events if events is not None else []).append
    return asyncio.create_task(batcher.verify(b, VerifyCost(3, 10), opening, observe))


@on_loop
async def test_blocks_that_arrive_while_a_batch_runs_travel_together() -> None:
    batcher, verifier = make()
    first = submit(batcher, block("a"))
    call, answer = await verifier.calls.get()
    assert call.blocks == (block("a"),)
    later = [submit(batcher, block("b"))]
    with pytest.raises(TimeoutError):  # nothing is staged long before the running batch is expected to end
        await asyncio.wait_for(verifier.calls.get(), 0.05)
    later.append(submit(batcher, block("c")))
    answer.set_result(reply([verified(block("a"))]))
    assert (await first).outcome == verified(block("a"))
    call, answer = await verifier.calls.get()
    assert call.blocks == (block("b"), block("c"))
    answer.set_result(reply([verified(block("b")), verified(block("c"))]))
    assert [(await task).outcome.generation for task in later] == ["b", "c"]


@on_loop
async def test_the_next_batch_is_staged_when_the_running_one_should_end_and_no_third() -> None:
    batcher, verifier = make(predicted_s=0.0)
    submit(batcher, block("a"))
    first_call, first_answer = await verifier.calls.get()
    submit(batcher, block("b"))
    second_call, _ = await verifier.calls.get()
    assert (first_call.blocks, second_call.blocks) == ((block("a"),), (block("b"),))
    submit(batcher, block("c"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(verifier.calls.get(), 0.05)
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


@on_loop
async def test_a_lost_verifier_is_told_to_every_member_and_the_batcher_goes_on() -> None:
    verifier = HandDrivenVerifier()
    calls = 0

    async def dies_once(call: VerifyCall) -> VerifyReply:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise VerifierLostError("gone")
        return await verifier.verify(call)

    records: list[BatchRecord] = []
    batcher = Batcher(dies_once, Fcfs(), LIMITS, LinearCostModel(0.0, 0.0, 0.0, 100.0), records.append)
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
    answer.set_result(VerifyReply((), {}, 0.0, 0.0, 3.0, usage))
    await until(lambda: len(records) == 4)
    full, empty = StopReason.MAX_BLOCKS, StopReason.QUEUE_EMPTY
    assert [(record.blocks, record.reason) for record in records] == [(1, empty), (4, full), (2, empty), (0, empty)]
    assert [record.engine_s for record in records] == [0.5, 0.5, 0.5, 0.0]
    assert records[0].predicted_s == 7.0
    assert [record.predicted_s for record in records[1:3]] == pytest.approx([0.5, 0.5]), (
        "batches correct the prediction"
    )
    assert (records[3].idle_s, records[3].usage) == (3.0, usage)
