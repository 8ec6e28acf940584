"""The batcher against a verifier that is driven by hand: what travels together, who waits, what is followed."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from actors.messages import Refusal
from outrider.contracts.accounts import Account
from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.errors import RequestFailedError, VerifierLostError
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import (
    BlockRefused,
    OpenGeneration,
    Outcome,
    Resolution,
    Undecided,
    Unfinished,
    Unknown,
    Verified,
)
from outrider.costs.estimator import OnlineEstimator
from outrider.rounds.promise_tracker import VerifyTerms
from outrider.rounds.states import RoundEvent
from outrider.scheduling.policy import (
    StopReason,
)
from serve_app.coordination.batching.queued_blocks import QueuedBlock
from serve_app.coordination.reporting.statistics import BatchRecord
from tests.unit.serve_app.coordination.hand_driven import (
    DEADLINE_S,
    LIMITS,
    USAGE,
    Asked,
    alone,
    block,
    follows,
    make,
    submit,
    verified,
)
from tests.unit.serve_app.coordination.in_memory import until
from tests.unit.virtual_clock import on_loop


@on_loop
async def test_what_comes_at_once_travels_together_and_never_waits_for_a_step() -> None:
    batcher, verifier = make()
    first = [submit(batcher, block(name)) for name in "ab"]
    call = await verifier.calls.get()
    assert call.blocks == (block("a"), block("b"))
    later = submit(batcher, block("c"))
    assert (await verifier.calls.get()).blocks == (block("c"),), "it may join the next step"
    verifier.brings(verified(block("b")), verified(block("a")))
    assert [(await task).outcome.generation for task in first] == ["a", "b"]
    assert not later.done()
    verifier.brings(verified(block("c")))
    assert (await later).outcome == verified(block("c"))


@on_loop
async def test_who_finds_no_room_joins_as_soon_as_there_is_some() -> None:
    records: list[BatchRecord] = []
    batcher, verifier = make(records=records)
    tasks = [submit(batcher, block(name)) for name in "abcdefg"]
    assert [b.generation for b in (await verifier.calls.get()).blocks] == list("abcd")
    assert batcher.queued_blocks == 3
    verifier.brings(verified(block("a")), Unfinished("b", 0, 3), Unfinished("c", 0, 3), verified(block("d")))
    assert [b.generation for b in (await verifier.calls.get()).blocks] == list("efg"), "the next step ends b and c"
    verifier.brings(*(verified(block(name)) for name in "bcefg"))
    await asyncio.gather(*tasks)
    full, empty = StopReason.MAX_BLOCKS, StopReason.QUEUE_EMPTY
    assert [(record.blocks, record.reason) for record in records] == [(4, full), (5, empty)]


@on_loop
async def test_a_autonomous_run_is_followed_round_by_round_as_far_as_it_may_go() -> None:
    batcher, verifier = make()
    first = submit(batcher, alone("a", 2, frozenset({9})))
    assert (await verifier.calls.get()).blocks == (alone("a", 2, frozenset({9})),)
    for number in range(3):
        verifier.brings(Verified("a", number, (), 7))
    assert (await first).outcome == Verified("a", 0, (), 7)
    assert [(await follows(batcher, "a")).outcome.round for _ in range(2)] == [1, 2]
    assert batcher.idle, "its leave is used up"
    again = submit(batcher, alone("a", 9, frozenset({9})))
    batcher.extend("a", 12)
    assert (await verifier.calls.get()).grants == (), "nothing goes on yet"
    verifier.brings(verified(alone("a", 9)))
    await again
    batcher.extend("a", 12)
    assert (await verifier.calls.get()).grants == (("a", 12),)
    verifier.brings(Verified("a", 1, (), 9))
    await follows(batcher, "a")
    assert batcher.idle, "that was an end token"


@on_loop
async def test_leave_that_comes_late_finds_the_autonomous_run_where_it_stopped() -> None:
    batcher, verifier = make()
    first = submit(batcher, alone("a", 1))
    await verifier.calls.get()
    verifier.brings(verified(block("a")))
    verifier.brings(Verified("a", 1, (), 7))
    await first
    await until(lambda: batcher.idle)
    batcher.extend("a", 3)
    assert (await follows(batcher, "a")).outcome.round == 1
    assert (await verifier.calls.get()).grants == (("a", 3),)
    verifier.brings(Verified("a", 2, (), 7))
    assert (await follows(batcher, "a")).outcome.round == 2
    verifier.brings(Verified("a", 3, (), 7))
    assert (await follows(batcher, "a")).outcome.round == 3
    batcher.close("a", keep_cache=False)
    await verifier.calls.get()
    batcher.extend("a", 9)
    with pytest.raises(KeyError):
        await follows(batcher, "a")


@on_loop
async def test_who_follows_what_has_ended_is_told_so() -> None:
    batcher, verifier = make()
    first = submit(batcher, alone("a", 5, frozenset({9})))
    await verifier.calls.get()
    verifier.brings(Verified("a", 0, (), 9))
    await first
    with pytest.raises(VerifierLostError, match="no block of a is in progress"):
        await follows(batcher, "a")


@on_loop
async def test_outcomes_of_a_time_before_a_loss_are_not_listened_to() -> None:
    batcher, verifier = make()
    lost = submit(batcher, block("a", 3))
    call = await verifier.calls.get()
    assert (call.session, call.number) == (0, 0)
    verifier.dies()
    with pytest.raises(VerifierLostError):
        await lost
    again = submit(batcher, block("a", 4))
    call = await verifier.calls.get()
    assert (call.session, call.number) == (1, 0)
    verifier.brings(Verified("a", 4, (), 99), session=0)
    verifier.brings(verified(block("a", 3)))
    verifier.brings(verified(block("a", 4)))
    assert (await again).outcome == verified(block("a", 4))


@on_loop
async def test_what_a_prefix_lacks_is_computed_without_being_asked_again() -> None:
    batcher, verifier = make()
    events: list[RoundEvent] = []
    opening = OpenGeneration("a", (1,) * 10, SamplingParams())
    task = submit(batcher, block("a"), opening, events)
    call = await verifier.calls.get()
    assert (call.openings, call.blocks) == ((opening,), (block("a"),))
    await asyncio.sleep(2.0)
    verifier.brings(Unfinished("a", 0, 5))
    verifier.brings(verified(block("a")))
    result = await task
    assert verifier.calls.empty()
    assert (result.queue_s, result.verify_s) == (1.0, 1.0), "both steps count, and what was waited beside them"
    assert events == [RoundEvent.DISPATCHED]


@on_loop
async def test_an_opening_that_is_refused_refuses_its_block_only() -> None:
    batcher, verifier = make()
    tasks = [submit(batcher, block(name)) for name in "ab"]
    await verifier.calls.get()
    verifier.brings(Unknown("a", 0), verified(block("b")), refused={"a": Refusal("too long", too_long=True)})
    assert (await tasks[0]).outcome == BlockRefused("a", 0, "too long", too_long=True)
    assert (await tasks[1]).outcome == verified(block("b"))


@pytest.mark.parametrize("loss", ["died", "hung"])
@on_loop
async def test_a_lost_verifier_is_told_to_all_who_were_under_way_and_the_batcher_goes_on(loss: str) -> None:
    records: list[BatchRecord] = []
    batcher, verifier = make(records=records)
    tasks = [submit(batcher, block(name)) for name in "abcd"]
    queued = submit(batcher, block("e"))
    await verifier.calls.get()
    if loss == "died":
        verifier.dies()
    for task in tasks:
        with pytest.raises(VerifierLostError, match="gone"):
            await task
    assert verifier.hung == (loss == "hung")
    assert (await verifier.calls.get()).blocks == (block("e"),), "who was not sent is not lost"
    verifier.brings(verified(block("e")))
    assert (await queued).outcome == verified(block("e"))
    assert batcher.idle


@on_loop
async def test_a_verifier_without_work_is_not_taken_for_one_that_hangs() -> None:
    batcher, verifier = make()
    task = submit(batcher, block("a"))
    await verifier.calls.get()
    await asyncio.sleep(DEADLINE_S / 2)
    verifier.brings(verified(block("a")))
    await task
    await asyncio.sleep(10 * DEADLINE_S)
    assert not verifier.hung


@on_loop
async def test_a_cancelled_block_leaves_the_queue_and_whoever_is_closed_is_heard_of_no_more() -> None:
    batcher, verifier = make()
    running = [submit(batcher, block(name)) for name in "abcd"]
    queued = submit(batcher, block("e"))
    await verifier.calls.get()
    assert batcher.queued_blocks == 1
    for task in (*running, queued):
        task.cancel()
    await asyncio.gather(queued, *running, return_exceptions=True)
    assert batcher.queued_blocks == 0
    batcher.close("a", keep_cache=False)
    assert [closing.generation for closing in (await verifier.calls.get()).closings] == ["a"]
    verifier.brings(*(verified(block(name)) for name in "abcd"))
    await until(lambda: batcher.idle)


STATES = np.zeros((1, 2), np.float32)


@on_loop
async def test_what_is_undecided_is_decided_by_its_resolution() -> None:
    batcher, verifier = make()
    task = submit(batcher, block("a", 3))
    await verifier.calls.get()
    verifier.brings(Undecided("a", 3, (0,)))
    assert (await task).outcome == Undecided("a", 3, (0,))
    resolved = asyncio.create_task(batcher.resolve(Resolution("a", 3, STATES)))
    assert (await verifier.calls.get()).resolutions == (Resolution("a", 3, STATES),)
    verifier.brings(Verified("a", 3, (0,), 7), computed=())
    assert (await resolved).outcome == Verified("a", 3, (0,), 7)
    task = submit(batcher, block("a", 4))
    await verifier.calls.get()
    verifier.brings(Undecided("a", 4, (0,)))
    await task
    await asyncio.sleep(10 * DEADLINE_S)
    assert not verifier.hung, "a device is waited for"
    lost = asyncio.create_task(batcher.resolve(Resolution("a", 4, None)))
    await verifier.calls.get()
    verifier.dies()
    with pytest.raises(VerifierLostError, match="gone"):
        await lost


@on_loop
async def test_a_resolution_that_does_not_fit_may_be_followed_by_another_and_one_after_a_loss_is_told_of_it() -> None:
    batcher, verifier = make()
    task = submit(batcher, block("a", 3))
    await verifier.calls.get()
    verifier.brings(Undecided("a", 3, (0,)))
    await task
    for resolution, outcome in ((STATES, BlockRefused("a", 3, "no fit")), (None, Verified("a", 3, (), 7))):
        resolved = asyncio.create_task(batcher.resolve(Resolution("a", 3, resolution)))
        await verifier.calls.get()
        verifier.brings(outcome, computed=())
        assert (await resolved).outcome == outcome
    tasks = [submit(batcher, block("a", 4)), submit(batcher, block("b"))]
    await verifier.calls.get()
    verifier.brings(Undecided("a", 4, (0,)))
    await tasks[0]
    verifier.dies()
    with pytest.raises(VerifierLostError):
        await tasks[1]
    with pytest.raises(VerifierLostError, match="gone"):
        await batcher.resolve(Resolution("a", 4, None))


@pytest.mark.parametrize("dies_again", [False, True])
@on_loop
async def test_the_deadline_begins_anew_with_what_is_given_after_a_loss(dies_again: bool) -> None:
    batcher, verifier = make()
    lost = submit(batcher, block("a"))
    await verifier.calls.get()
    if dies_again:  # by itself, before its deadline
        verifier.dies()
    with pytest.raises(VerifierLostError):
        await lost
    assert verifier.hung is not dies_again
    verifier.hung = False
    await asyncio.sleep(3 * DEADLINE_S)
    assert not verifier.hung, "it loads again, and owes nothing"
    hangs = submit(batcher, block("b"))
    await verifier.calls.get()
    with pytest.raises(VerifierLostError):
        await hangs
    assert verifier.hung


@on_loop
async def test_closings_travel_with_the_next_call_or_soon_by_themselves() -> None:
    batcher, verifier = make()
    batcher.close("gone", keep_cache=False)
    submit(batcher, block("a"))
    assert [closing.generation for closing in (await verifier.calls.get()).closings] == ["gone"]
    verifier.brings(verified(block("a")))
    batcher.close("a", keep_cache=True)
    call = await verifier.calls.get()
    assert (call.blocks, [(closing.generation, closing.keep_cache) for closing in call.closings]) == ((), [("a", True)])


@on_loop
async def test_every_step_is_told_with_what_it_was_expected_to_take() -> None:
    records: list[BatchRecord] = []
    batcher, verifier = make(predicted_s=7.0, records=records)
    for name in "ab":
        task = submit(batcher, block(name))
        await verifier.calls.get()
        verifier.brings(verified(block(name)))
        await task
    verifier.brings(computed=())
    await until(lambda: len(records) == 3)
    assert [record.blocks for record in records] == [1, 1, 0]
    assert [record.engine_s for record in records] == [0.5] * 3
    assert [record.predicted_s for record in records[:2]] == pytest.approx([7.0, 0.5], rel=1e-2), "it is corrected"


@on_loop
async def test_the_policy_is_told_what_each_block_is_owed_and_how_much_memory_there_is() -> None:
    batcher, verifier = make(policy=(policy := Asked()), block_tokens=4)
    terms = VerifyTerms(deadline_at_s=123.5, expected_tokens=2.5, tokens_per_s=8.0)
    long = replace(block("a"), position=20)
    tasks = [asyncio.create_task(batcher.verify(long, VerifyCost(22, 0), None, lambda _: None, terms))]
    await verifier.calls.get()
    verifier.brings(Unfinished("a", 0, 20))
    await until(lambda: verifier.calls.empty() and batcher.cost_model is not None)
    tasks.append(submit(batcher, block("b")))
    await verifier.calls.get()
    verifier.brings(verified(block("a")), verified(block("b")))
    await asyncio.gather(*tasks)
    ((first,), before), ((begun, second), then) = policy.calls
    assert (first.deadline_at_s, first.expected_tokens, first.tokens_per_s) == (123.5, 2.5, 8.0)
    assert first.memory_blocks == 6, "of 22 positions"
    assert begun == replace(first, cost=VerifyCost(20, 2), prefill_tokens=17), "who is within is asked about too"
    assert (second.deadline_at_s, second.tokens_per_s) == (float("inf"), 0.0), "nothing was promised"
    assert before == LIMITS, "how much memory there is, the first step tells"
    assert then == replace(LIMITS, max_memory_blocks=USAGE.total_blocks)


@on_loop
async def test_who_decodes_alone_is_held_back_for_whom_the_policy_prefers_and_goes_on_after_it() -> None:
    batcher, verifier = make()
    autonomous_runs = [submit(batcher, alone(name, 50)) for name in "abcd"]
    await verifier.calls.get()
    await asyncio.sleep(1.0)
    waiting = submit(batcher, block("e"))
    await asyncio.sleep(1.0)
    assert verifier.calls.empty(), "they came first"
    verifier.brings(*(verified(block(name)) for name in "abcd"))
    await asyncio.gather(*autonomous_runs)
    call = await verifier.calls.get()
    assert (call.blocks, call.grants) == ((block("e"),), (("d", 0),))
    assert batcher.queued_blocks == 1
    batcher.extend("d", 70)
    verifier.brings(*(Verified(name, 1, (), 7) for name in "abc"), Verified("d", 1, (), 7), verified(block("e")))
    await waiting
    assert (await follows(batcher, "d")).outcome.round == 1, "it was under way when it was held back"
    call = await verifier.calls.get()
    assert call.grants == (("d", 70),)
    verifier.brings(*(Verified(name, 2, (), 7) for name in "abcd"))
    assert (await follows(batcher, "d")).outcome.round == 2


@on_loop
async def test_prompts_of_two_accounts_share_chunks_in_an_order_that_the_verifier_is_told() -> None:
    batcher, verifier = make()
    with batcher.charged("a", Account("a")), batcher.charged("b", Account("b")):
        prompts = [submit(batcher, block(name), cost=VerifyCost(43, 0)) for name in "ab"]
        call = await verifier.calls.get()
        assert ([each.generation for each in call.blocks], call.prefill_order) == (["a", "b"], ("a", "b"))
        verifier.brings(Unfinished("a", 0, 27), Unfinished("b", 0, 43))
        assert (await verifier.calls.get()).prefill_order == ("b", "a"), "whose turn it is"
        verifier.brings(Unfinished("a", 0, 27), Unfinished("b", 0, 27))
        assert (await verifier.calls.get()).prefill_order == ("a", "b")
        verifier.brings(verified(block("a")), verified(block("b")))
        await asyncio.gather(*prompts)
    alone_again = submit(batcher, block("c"), cost=VerifyCost(43, 0))
    assert (await verifier.calls.get()).prefill_order == ()
    verifier.brings(verified(block("c")))
    await alone_again


@on_loop
async def test_the_estimator_learns_from_what_a_pass_computed_not_from_what_was_foreseen() -> None:
    """A prompt that is in the prefix cache, or a chunk that others took, costs next to nothing."""
    taught = []
    for computed in ((), (VerifyCost(1, 30),), (VerifyCost(16, 0),)):
        start = LinearCostModel(0.1, 0.0, 0.0, 0.4)
        batcher, verifier = make(model=start)
        task = submit(batcher, block("a"), cost=VerifyCost(31, 0))
        verifier.brings(verified(block("a")), computed=computed)
        await task
        taught.append(batcher.cost_model)
        assert batcher.cost_model == OnlineEstimator(start).observed(computed, 0.5).model
    nothing, little, chunk = taught
    assert nothing == LinearCostModel(0.1, 0.0, 0.0, 0.4)
    one_row = [VerifyCost(1, 30)]
    assert little.predict_s(one_row) == pytest.approx(0.5, rel=0.05)
    assert chunk.predict_s(one_row) < 0.7 * little.predict_s(one_row), "the same time, taken for that of sixteen rows"


@on_loop
async def test_who_the_verifier_names_with_its_last_words_is_alone_until_it_is_decided() -> None:
    batcher, verifier = make()
    tasks = [submit(batcher, block(name)) for name in "abc"]
    await verifier.calls.get()
    verifier.brings(suspects=("a", "b"))
    verifier.dies()
    for task in tasks:
        with pytest.raises(VerifierLostError):
            await task
    assert [batcher.suspects(name) for name in "abc"] == [True, True, False]
    again = [submit(batcher, block(name, 1)) for name in "cab"]
    for name in "ab":
        assert [one.generation for one in (await verifier.calls.get()).blocks] == [name]
        verifier.brings(verified(block(name, 1)))
    assert [one.generation for one in (await verifier.calls.get()).blocks] == ["c"]
    verifier.brings(verified(block("c", 1)))
    await asyncio.gather(*again)
    assert not any(map(batcher.suspects, "abc"))


@on_loop
async def test_who_is_lost_with_the_verifier_alone_twice_is_refused_and_the_others_go_on() -> None:
    batcher, verifier = make()
    task, other = submit(batcher, block("a")), submit(batcher, block("b"))
    for number in range(1, 4):
        await verifier.calls.get()
        verifier.brings(suspects=("a",))
        verifier.dies()
        with pytest.raises(VerifierLostError if number < 3 else RequestFailedError):
            await task
        if number < 3:
            task = submit(batcher, block("a", number))
        if number == 1:
            with pytest.raises(VerifierLostError):
                await other
    other = submit(batcher, block("b", 1))
    assert [one.generation for one in (await verifier.calls.get()).blocks] == ["b"]
    verifier.brings(verified(block("b", 1)))
    assert (await other).outcome == verified(block("b", 1))


@on_loop
async def test_an_outcome_that_cannot_be_settled_is_its_own_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    batcher, verifier = make()
    sent, other = submit(batcher, block("a")), submit(batcher, block("b"))
    await verifier.calls.get()
    whole = QueuedBlock.went_on

    def went_on(member: QueuedBlock, outcome: Outcome) -> bool:
        if member.block.generation == "a":
            raise ZeroDivisionError
        return whole(member, outcome)

    monkeypatch.setattr(QueuedBlock, "went_on", went_on)
    verifier.brings(verified(block("a")), verified(block("b")))
    with pytest.raises(RequestFailedError, match="ZeroDivisionError"):
        await sent
    assert (await other).outcome == verified(block("b"))
