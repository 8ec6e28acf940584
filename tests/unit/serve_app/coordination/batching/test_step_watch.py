"""A verifier that brings nothing is asked whether it gets on, where its responses can go on elsewhere."""

import asyncio

import pytest

from outrider.contracts.cost import LinearCostModel
from outrider.contracts.errors import VerifierLostError
from outrider.costs.estimator import OnlineEstimator
from outrider.scheduling.fcfs import Fcfs
from serve_app.coordination.batching.batcher import Batcher, Planning
from serve_app.coordination.batching.step_watch import Doubt
from tests.unit.serve_app.coordination.hand_driven import (
    DEADLINE_S,
    LIMITS,
    HandDrivenVerifier,
    block,
    submit,
    verified,
)
from tests.unit.virtual_clock import now_s, on_loop

SILENCE_S = 1.0
STEP_S = 0.5  # what steps driven by hand say that they took


class Doubted:
    """A verifier of which somebody else decides whether it gets on."""

    def __init__(self, *, silent: bool = False, elsewhere: bool = True) -> None:
        self.silent, self.elsewhere = silent, elsewhere
        self.asked: list[tuple[float, float]] = []
        self.verifier = HandDrivenVerifier()
        planning = Planning(Fcfs(), LIMITS, 16, DEADLINE_S)
        estimator = OnlineEstimator(LinearCostModel(0.0, 0.0, 0.0, 100.0))
        doubt = Doubt(SILENCE_S, lambda: self.elsewhere, self._is_silent)
        self.batcher = Batcher(self.verifier, planning, estimator, lambda _: None, now_s, doubt)

    async def _is_silent(self, longest_s: float) -> bool:
        self.asked.append((now_s(), longest_s))
        return self.silent


@on_loop
async def test_all_of_a_silent_verifier_go_on_elsewhere_and_it_is_told_anew() -> None:
    doubted = Doubted(silent=True)
    tasks = [submit(doubted.batcher, block(name)) for name in "abcde"]
    assert len((await doubted.verifier.calls.get()).blocks) == LIMITS.max_blocks
    for task in tasks:
        with pytest.raises(VerifierLostError, match="the verifier is silent"):
            await task
    assert now_s() == pytest.approx(SILENCE_S)
    assert not doubted.verifier.hung
    assert doubted.batcher.idle
    assert doubted.batcher.queued_blocks == 0, "one that waited for a place waits no longer here"
    doubted.verifier.brings(verified(block("a")))  # it goes on, with what nobody waits for
    doubted.silent = False
    task = submit(doubted.batcher, block("f"))
    call = await doubted.verifier.calls.get()
    assert (call.session, call.number) == (1, 0), "all that was is forgotten"
    doubted.verifier.brings(verified(block("f")))
    assert (await task).outcome == verified(block("f"))
    assert not doubted.batcher.suspects("a"), "nobody is to blame"


@pytest.mark.parametrize(("silent", "elsewhere"), [(False, True), (True, False)])
@on_loop
async def test_one_that_gets_on_or_has_no_other_beside_it_keeps_what_it_was_given(
    *, silent: bool, elsewhere: bool
) -> None:
    doubted = Doubted(silent=silent, elsewhere=elsewhere)
    task = submit(doubted.batcher, block("a"))
    await doubted.verifier.calls.get()
    await asyncio.sleep(10 * SILENCE_S)
    assert not task.done()
    assert len(doubted.asked) == (9 if elsewhere else 0)
    doubted.verifier.brings(verified(block("a")))
    assert (await task).outcome == verified(block("a"))
    asked = len(doubted.asked)
    await asyncio.sleep(10 * SILENCE_S)
    assert len(doubted.asked) == asked, "it owes nothing"


@on_loop
async def test_a_deadline_stands_beside_doubts() -> None:
    doubted = Doubted(silent=True, elsewhere=False)
    task = submit(doubted.batcher, block("a"))
    with pytest.raises(VerifierLostError, match="gone"):
        await task
    assert doubted.verifier.hung
    assert now_s() == pytest.approx(DEADLINE_S)


@on_loop
async def test_what_is_long_for_a_step_is_told_by_the_last_ones() -> None:
    doubted = Doubted()
    for name in "ab":
        task = submit(doubted.batcher, block(name))
        await doubted.verifier.calls.get()
        await asyncio.sleep(1.5 * SILENCE_S)
        doubted.verifier.brings(verified(block(name)))
        await task
    assert [longest_s for _, longest_s in doubted.asked] == [SILENCE_S, max(SILENCE_S, 4 * STEP_S)]


@on_loop
async def test_who_asks_is_gone_with_the_batcher() -> None:
    doubted = Doubted()
    task = submit(doubted.batcher, block("a"))
    await doubted.verifier.calls.get()
    await asyncio.sleep(SILENCE_S + 0.1)
    doubted.batcher.stop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
