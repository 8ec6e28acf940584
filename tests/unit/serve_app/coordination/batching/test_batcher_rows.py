"""What the batcher cuts, and whom it waits for."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.verifying import (
    AcceptanceRule,
    Block,
)
from outrider.rounds.events import VerifyResult
from outrider.rounds.promise_tracker import VerifyTerms
from serve_app.coordination.batching.batcher import Batcher
from tests.unit.serve_app.coordination.hand_driven import (
    HandDrivenVerifier,
    block,
    make,
    submit,
    verified,
)
from tests.unit.virtual_clock import now_s, on_loop

DEAR = LinearCostModel(4.5e-3, 0.0, 0.0, 45e-3)


def drafted(name: str, rule: AcceptanceRule = AcceptanceRule.GREEDY) -> tuple[Block, VerifyTerms]:
    """Six tokens that hardly survive."""
    survivals = tuple(0.5**depth for depth in range(1, 7))
    made = replace(block(name), draft=tuple(range(6)), rule=rule)
    return made, VerifyTerms(survivals=survivals, expected_tokens=2.0)


def ask(batcher: Batcher, made: tuple[Block, VerifyTerms]) -> asyncio.Task[VerifyResult]:
    return asyncio.create_task(batcher.verify(made[0], VerifyCost(7, 10), None, lambda _: None, made[1]))


@on_loop
async def test_drafts_of_a_crowd_are_cut_and_who_asked_is_told() -> None:
    batcher, verifier = make(model=DEAR)
    tasks = [ask(batcher, drafted(name)) for name in "abc"]
    blocks = (await verifier.calls.get()).blocks
    kept = len(blocks[0].draft)
    assert 0 < kept < 6
    assert [b.draft for b in blocks] == [tuple(range(kept))] * 3
    verifier.brings(*map(verified, blocks))
    assert [(await task).draft_tokens for task in tasks] == [kept] * 3
    whole = submit(batcher, block("d"))
    (b,) = (await verifier.calls.get()).blocks
    verifier.brings(verified(b))
    assert (await whole).draft_tokens is None


@on_loop
async def test_a_ratio_rules_cut_is_that_of_the_time_when_it_was_ordered() -> None:
    """Nobody had drafted then: whatever the step it comes to, it is whole."""
    batcher, verifier = make(model=DEAR)
    batcher.expect("r", 0.0)
    tasks = [ask(batcher, made) for made in (drafted("a"), drafted("b"), drafted("r", AcceptanceRule.RATIO))]
    blocks = {b.generation: b for b in (await verifier.calls.get()).blocks}
    assert len(blocks["a"].draft) < len(blocks["r"].draft) == 6
    batcher.expect("s", 0.0)
    verifier.brings(*map(verified, blocks.values()))
    await asyncio.gather(*tasks)
    alone = ask(batcher, drafted("s", AcceptanceRule.RATIO))
    (b,) = (await verifier.calls.get()).blocks
    assert len(b.draft) == len(blocks["a"].draft)
    verifier.brings(verified(b))
    await alone


async def pass_sizes(batcher: Batcher, verifier: HandDrivenVerifier, arrive_s: Sequence[float]) -> list[int]:
    """Blocks of each call, where drafts were ordered at once and come after so long each."""
    names = "abcd"[: len(arrive_s)]
    for name, at_s in zip(names, arrive_s, strict=True):
        batcher.expect(name, at_s)

    async def comes(name: str, at_s: float) -> None:
        await asyncio.sleep(at_s)
        await submit(batcher, block(name))

    tasks = [asyncio.create_task(comes(name, at_s)) for name, at_s in zip(names, arrive_s, strict=True)]
    sizes = list[int]()
    while sum(sizes) < len(arrive_s):
        call = await verifier.calls.get()
        sizes.append(len(call.blocks))
        await asyncio.sleep(0.03)
        verifier.brings(*map(verified, call.blocks))
    await asyncio.gather(*tasks)
    return sizes


@pytest.mark.parametrize(
    ("arrive_s", "sizes"),
    [
        ((0.010, 0.011, 0.012, 0.0125), [4]),  # would part for ever: one, and three behind it
        ((0.010, 0.011, 0.012, 0.020), [3, 1]),  # the last is not expected soon
        ((0.010,), [1]),
    ],
)
@on_loop
async def test_who_comes_back_together_stays_together(arrive_s: Sequence[float], sizes: list[int]) -> None:
    batcher, verifier = make(model=LinearCostModel(1e-4, 0.0, 0.0, 40e-3))
    assert await pass_sizes(batcher, verifier, arrive_s) == sizes


@on_loop
async def test_a_device_that_does_not_come_back_costs_one_hold() -> None:
    batcher, verifier = make(model=LinearCostModel(1e-4, 0.0, 0.0, 40e-3))
    batcher.expect("lost", 0.002)
    first = submit(batcher, block("a"))
    call = await verifier.calls.get()
    assert 0.002 < now_s() <= 0.004 + 1e-6
    verifier.brings(*map(verified, call.blocks))
    await first
    began_s, again = now_s(), submit(batcher, block("a", 1))
    verifier.brings(verified((await verifier.calls.get()).blocks[0]))
    assert now_s() == began_s
    await again
