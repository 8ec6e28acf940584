"""Blocks that join an autonomous run of their generation, against a verifier that is driven by hand."""

import asyncio
from dataclasses import replace

import pytest

from actors.messages import VerifyCall
from outrider.contracts.autonomous_runs import overtaken
from outrider.contracts.cost import VerifyCost
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.verifying import AutonomousRun, Block, Unknown, Verified
from outrider.rounds.events import VerifyResult
from outrider.rounds.promise_tracker import VerifyTerms
from outrider.rounds.states import RoundEvent
from serve_app.coordination.batching.batcher import Batcher
from tests.unit.serve_app.coordination.hand_driven import (
    HandDrivenVerifier,
    Picky,
    alone,
    block,
    follows,
    make,
    submit,
    verified,
)
from tests.unit.virtual_clock import now_s, on_loop


def late(name: str, *draft: int, until_round: int = 60) -> Block:
    return replace(block(name, 60), position=11, draft=draft, autonomous_run=AutonomousRun(until_round, frozenset({9})))


@on_loop
async def test_a_block_that_joins_a_autonomous_run_is_told_behind_the_rounds_that_were_under_way() -> None:
    batcher, verifier = make()
    first = submit(batcher, alone("a", 50, frozenset({9})))
    await verifier.calls.get()
    verifier.brings(verified(block("a")))
    await first
    batcher.extend("a", 55)
    events, terms = list[RoundEvent](), VerifyTerms(7.0, 2.0, survivals=(0.8, 0.4, 0.2))
    batcher.join(late("a", 7, 8, 9, until_round=62), VerifyCost(4, 11), events.append, terms)
    call = await verifier.calls.get()
    assert (call.blocks, call.grants) == ((late("a", 7, 8, 9, until_round=62),), ()), "no leave of the stretch's"
    assert events == [RoundEvent.DISPATCHED]
    batcher.promised("a", VerifyTerms())
    verifier.brings(Verified("a", 1, (), 7))
    assert (await follows(batcher, "a")).outcome.round == 1
    elapsed_s = now_s()
    await asyncio.sleep(1.0)
    verifier.brings(Verified("a", 60, (0,), 4))
    result = await follows(batcher, "a")
    assert (result.outcome.round, result.draft_tokens) == (60, None)
    assert result.queue_s == pytest.approx(now_s() - elapsed_s - 0.5), "what came before is the stretch's"
    verifier.brings(Verified("a", 61, (), 4), Verified("a", 2, (), 4))
    assert (await follows(batcher, "a")).outcome.round == 61, "it had no end token in front"
    assert not batcher.idle
    verifier.brings(Verified("a", 62, (), 9))
    await follows(batcher, "a")
    assert batcher.idle


@on_loop
async def test_a_block_that_finds_no_room_holds_its_autonomous_run_back_and_joins_later() -> None:
    policy = Picky()
    batcher, verifier = make(policy=policy)
    autonomous_runs = [submit(batcher, alone(name, 50)) for name in "abcd"]
    await verifier.calls.get()
    verifier.brings(*(verified(block(name)) for name in "abcd"))
    await asyncio.gather(*autonomous_runs)
    policy.unwanted = {"a"}
    batcher.join(late("a", 7, 8, 3), VerifyCost(4, 11), lambda _: None)
    call = await verifier.calls.get()
    assert (call.blocks, call.grants) == ((), (("a", 0),))
    policy.unwanted = set()
    verifier.brings(*(Verified(name, 1, (), 7) for name in "abcd"))
    call = await verifier.calls.get()
    left = overtaken(late("a", 7, 8, 3), (7,))
    assert (call.blocks, call.grants, left.draft) == ((left,), (), (8, 3))


@pytest.mark.parametrize("given", [True, False])
@on_loop
async def test_a_verifier_that_is_lost_loses_what_was_to_join_it(given: bool) -> None:
    batcher, verifier = make()
    first = submit(batcher, alone("a", 50))
    await verifier.calls.get()
    verifier.brings(verified(block("a")))
    await first
    batcher.join(late("a", 7), VerifyCost(2, 11), lambda _: None)
    if given:
        await verifier.calls.get()
    verifier.dies()
    with pytest.raises(VerifierLostError):
        await follows(batcher, "a")
    assert batcher.idle
    again = submit(batcher, block("a", 61))
    verifier.brings(Verified("a", 60, (), 7), session=0)
    assert (await until_given(verifier, 61)).session == 1
    verifier.brings(verified(block("a", 61)))
    assert (await again).outcome.round == 61


async def until_given(verifier: HandDrivenVerifier, number: int) -> VerifyCall:
    """The call that brings a round."""
    while True:
        call = await verifier.calls.get()
        if any(block.round == number for block in call.blocks):
            return call


async def decoding_alone(*names: str) -> tuple[Batcher, HandDrivenVerifier, Picky]:
    """Generations whose first round is over and that go on by themselves."""
    policy = Picky()
    batcher, verifier = make(policy=policy)
    begun = [submit(batcher, alone(name, 50)) for name in names]
    await verifier.calls.get()
    verifier.brings(*(verified(block(name)) for name in names))
    await asyncio.gather(*begun)
    return batcher, verifier, policy


@on_loop
async def test_what_its_follower_promises_for_the_autonomous_run_behind_it_holds() -> None:
    batcher, verifier, _ = await decoding_alone("a")
    batcher.join(late("a", 7, 8, until_round=70), VerifyCost(3, 11), lambda _: None, VerifyTerms(7.0, 2.2))
    await verifier.calls.get()

    def sent(_: VerifyResult | Exception) -> bool:
        batcher.promised("a", VerifyTerms(99.0, 1.0))
        return True

    batcher.follow("a", sent)
    verifier.brings(Verified("a", 60, (0,), 4))
    await asyncio.sleep(1.0)
    batcher.extend("a", 60)
    pending = batcher._blocks.queued["a"].pending()  # noqa: SLF001 (what the policy will see)
    assert pending.deadline_at_s == 99.0


@on_loop
async def test_a_block_whose_autonomous_run_was_lost_is_not_given_any_more() -> None:
    batcher, verifier, policy = await decoding_alone("a", "b")
    policy.unwanted = {"a"}
    events = list[RoundEvent]()
    batcher.join(late("a", 7, 8), VerifyCost(3, 11), events.append)
    await verifier.calls.get()
    policy.unwanted = set()
    verifier.brings(Unknown("a", 1), Verified("b", 1, (), 7))
    assert isinstance((await follows(batcher, "a")).outcome, Unknown)
    await asyncio.sleep(1.0)
    assert not events


@on_loop
async def test_who_waits_already_keeps_its_place_when_its_draft_comes() -> None:
    batcher, verifier, policy = await decoding_alone("a", "b")
    policy.unwanted = {"a"}
    other = submit(batcher, alone("c", 50))
    await verifier.calls.get()
    since_s = batcher._blocks.queued["a"].pending().arrived_at_s  # noqa: SLF001 (what the policy sees)
    await asyncio.sleep(5.0)
    batcher.join(late("a", 7, 8), VerifyCost(3, 11), lambda _: None)
    assert batcher._blocks.queued["a"].pending().arrived_at_s == since_s  # noqa: SLF001
    other.cancel()
