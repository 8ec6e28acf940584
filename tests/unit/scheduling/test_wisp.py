"""WISP's algorithm 1: its order, its stop, and where it never starts."""

import pytest

from outrider.contracts.cost import VerifyCost
from outrider.scheduling.policy import PendingVerification, StopReason
from outrider.scheduling.slo_aware import SloAware
from outrider.scheduling.wisp import Doomed, Wisp
from tests.unit.scheduling.queues import COSTS, GUARDED_COSTS, NOW_S, ROOMY, block

ALONE_S = COSTS.predict_s([VerifyCost(6, 500)])


def names(blocks: tuple[PendingVerification, ...]) -> str:
    return "".join(p.generation for p in blocks)


def test_critical_blocks_come_by_deadline_then_the_others_by_utility() -> None:
    queue = [
        block("a", slack_s=1.0, expected_tokens=1.0),
        block("b", slack_s=1.0, expected_tokens=3.0),
        block("c", expected_tokens=2.0),
        block("d", slack_s=0.2),
        block("e", slack_s=0.1),
    ]
    plan = Wisp(guard_s=0.5).plan(queue, NOW_S, ROOMY, COSTS)
    assert (names(plan.batch), plan.reason) == ("edbca", StopReason.QUEUE_EMPTY)
    assert names(Wisp(guard_s=0.0).plan(queue, NOW_S, ROOMY, COSTS).batch) == "bcdea", "nobody is critical yet"


def test_utility_is_per_second_of_verification() -> None:
    queue = [block("a", cost=VerifyCost(6, 9000), expected_tokens=2.5), block("b", expected_tokens=2.0)]
    assert names(Wisp().plan(queue, NOW_S, ROOMY, COSTS).batch) == "ba"


@pytest.mark.parametrize(("slack_s", "first"), [(1.04 * ALONE_S, "b"), (1.06 * ALONE_S, "a")])
def test_the_guard_is_the_cost_models_where_none_is_given(slack_s: float, first: str) -> None:
    guarded = type(COSTS)(3.314e-5, 3.45e-8, 4.62e-6, 1.486e-2, relative_guard=0.05)
    queue = [block("a", slack_s=9.0, expected_tokens=4.0), block("b", slack_s=slack_s)]
    assert names(Wisp().plan(queue, NOW_S, ROOMY, guarded).batch)[0] == first


def test_the_first_violation_ends_the_batch() -> None:
    two_s = COSTS.predict_s([VerifyCost(6, 500)] * 2)
    queue = [block("a", slack_s=two_s), block("b", slack_s=two_s), block("c", slack_s=9.0), block("d", slack_s=9.0)]
    plan = Wisp(guard_s=0.01).plan(queue, NOW_S, ROOMY, COSTS)
    assert (names(plan.batch), names(plan.waiting), plan.reason) == ("ab", "cd", StopReason.DEADLINE)


@pytest.mark.parametrize(("doomed", "batch"), [("binds_nobody", "abcd"), ("alone", "a"), ("last", "bcda")])
def test_a_doomed_block_is_dispatched_where_the_paper_waits_for_ever(doomed: str, batch: str) -> None:
    queue = [block("a", slack_s=-0.1), *(block(name, slack_s=3.0, expected_tokens=4.0) for name in "bcd")]
    plan = Wisp(doomed=Doomed(doomed)).plan(queue, NOW_S, ROOMY, GUARDED_COSTS)
    assert (names(plan.batch), plan.reason is StopReason.DEADLINE) == (batch, doomed == "alone")
    assert sorted(names(SloAware().plan(queue, NOW_S, ROOMY, GUARDED_COSTS).batch)) == list("abcd")


@pytest.mark.parametrize(("doomed", "batch"), [("binds_nobody", "a"), ("alone", "a"), ("last", "b")])
def test_a_critical_block_comes_before_a_doomed_one_only_where_that_is_last(doomed: str, batch: str) -> None:
    """Each of the two has time for itself alone."""
    queue = [block("a", slack_s=-0.1, expected_tokens=4.0), block("b", slack_s=1.01 * ALONE_S)]
    plan = Wisp(doomed=Doomed(doomed)).plan(queue, NOW_S, ROOMY, GUARDED_COSTS)
    assert (names(plan.batch), plan.reason) == (batch, StopReason.DEADLINE)


def test_a_marginal_utility_is_per_second_that_a_block_adds() -> None:
    """Alone the dear one takes 1.5 times as long, and adds four times as much."""
    queue = [
        block("a", cost=VerifyCost(6, 2200), expected_tokens=4.0, slack_s=9.0),
        block("b", expected_tokens=2.0, slack_s=9.0),
    ]
    assert names(Wisp().plan(queue, NOW_S, ROOMY, COSTS).batch) == "ab"
    assert names(Wisp(marginal=True).plan(queue, NOW_S, ROOMY, COSTS).batch) == "ba"
