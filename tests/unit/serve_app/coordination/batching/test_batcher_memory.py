"""What the batcher tells of deadlines for KV's sake, and what it makes of KV that is gone."""

import asyncio
from math import inf

import pytest

from outrider.contracts.cost import VerifyCost
from outrider.rounds.promise_tracker import VerifyTerms
from tests.unit.serve_app.coordination.hand_driven import Picky, alone, block, make, submit, verified
from tests.unit.virtual_clock import now_s, on_loop


@on_loop
async def test_deadlines_travel_as_durations_with_calls_that_travel_anyway() -> None:
    batcher, verifier = make()
    batcher.expect("a", 0.5, now_s() + 4.0)
    batcher.expect("b", 0.5)
    await asyncio.sleep(1.0)
    assert verifier.calls.empty(), "nobody is told of a deadline alone"
    terms = VerifyTerms(deadline_at_s=now_s() + 2.0)
    task = asyncio.create_task(batcher.verify(block("c"), VerifyCost(3, 10), None, lambda _: None, terms))
    dues = dict((await verifier.calls.get()).dues)
    assert dues == {"a": pytest.approx(3.0), "b": inf, "c": pytest.approx(2.0)}
    verifier.brings(verified(block("c")))
    await task
    batcher.expect("a", 0.5, now_s() + 9.0)
    batcher.close("a", keep_cache=True)
    batcher.expect("c", 0.5, now_s() + 1.0)
    batcher.close("b", keep_cache=True)
    await asyncio.sleep(0.1)
    assert dict((await verifier.calls.get()).dues) == {"c": pytest.approx(0.9, abs=0.11)}, "who is gone is due no more"


@on_loop
async def test_who_is_held_back_is_due_as_promised() -> None:
    policy = Picky()
    batcher, verifier = make(policy=policy)
    submit(batcher, alone("a", 9))
    await verifier.calls.get()
    batcher.promised("a", VerifyTerms(deadline_at_s=now_s() + 7.0))
    policy.unwanted.add("a")
    submit(batcher, block("b"))
    call = await verifier.calls.get()
    assert call.grants == (("a", -1),)
    assert dict(call.dues) == {"a": pytest.approx(7.0), "b": inf}


@on_loop
async def test_a_block_whose_kv_is_gone_is_planned_as_a_cold_one() -> None:
    policy = Picky()
    batcher, verifier = make(policy=policy)
    first = submit(batcher, block("a"))
    await verifier.calls.get()
    policy.unwanted.add("b")
    submit(batcher, block("b"))
    await asyncio.sleep(0.01)
    assert (policy.last["b"].cost, policy.last["b"].prefill_tokens) == (VerifyCost(3, 10), 0)
    verifier.brings(verified(block("a")), evicted=(("b", 4), ("a", 8), ("stranger", 0)))
    await first
    await asyncio.sleep(0.01)
    assert (policy.last["b"].cost, policy.last["b"].prefill_tokens) == (VerifyCost(9, 4), 6)
    again = submit(batcher, block("a", 1))
    await asyncio.sleep(0.01)
    assert policy.last["a"].cost == VerifyCost(5, 8), "it lost some while its device drafted"
    verifier.brings(verified(block("a", 1)))
    await again
    submit(batcher, block("a", 2))
    await asyncio.sleep(0.01)
    assert policy.last["a"].cost == VerifyCost(3, 10), "it has all of it again"
