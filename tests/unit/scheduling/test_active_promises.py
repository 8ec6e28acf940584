"""What is known of active promises between their blocks."""

from dataclasses import astuple, replace
from math import exp

import pytest

from outrider.contracts.cost import VerifyCost
from outrider.scheduling.active_promises import ActivePromises
from outrider.scheduling.policy import Promised
from outrider.scheduling.promised_load import PromisedNeed, added_s, load_of
from tests.unit.scheduling.queues import COSTS, INFINITY, NOW_S, block

FAST = block("fast", slack_s=0.1, tokens_per_s=8.0, expected_tokens=4.0)
SLOW = block("slow", slack_s=0.1, tokens_per_s=2.0, expected_tokens=3.0)


def load(tokens_per_s: float, expected_tokens: float) -> float:
    return load_of(PromisedNeed(tokens_per_s, expected_tokens, FAST.cost), COSTS)


def told(load: float, round_s: float) -> tuple[float, float, float]:
    """Of drafts that are not cut."""
    return astuple(Promised(load, round_s, load))


def test_each_response_counts_with_its_last_block_until_it_is_over() -> None:
    active = ActivePromises()
    assert active.promised(NOW_S) == Promised(0.0, INFINITY)
    active.arrived([(SLOW, 0)], NOW_S, COSTS)
    assert astuple(active.promised(NOW_S)) == pytest.approx(told(load(2.0, 3.0), 1.5))
    active.arrived([(FAST, 0)], NOW_S, COSTS)
    assert astuple(active.promised(NOW_S + 60.0)) == pytest.approx(told(load(2.0, 3.0) + load(8.0, 4.0), 0.5))
    active.arrived([(block("fast", slack_s=0.1, tokens_per_s=8.0, expected_tokens=2.0), 0)], NOW_S, COSTS)
    assert astuple(active.promised(NOW_S)) == pytest.approx(
        told(load(2.0, 3.0) + load(8.0, 2.0), 0.5 + 0.05 * (0.25 - 0.5))
    )
    active.over("fast")
    active.over("nobody")
    assert astuple(active.promised(NOW_S)) == pytest.approx(told(load(2.0, 3.0), 1.5))


def test_kv_counts_with_each_responses_last_block() -> None:
    active, slow = ActivePromises(), replace(SLOW, memory_blocks=10)
    active.arrived([(slow, 0), (replace(FAST, memory_blocks=5), 0)], NOW_S, COSTS)
    assert active.memory_blocks == 15
    active.arrived([(replace(slow, memory_blocks=12), 0)], NOW_S, COSTS)
    assert active.memory_blocks == 17
    active.over(slow.generation)
    assert active.memory_blocks == 5


def test_a_last_short_round_makes_no_batch_short() -> None:
    """Of one block of many: what there is to draft says nothing of what was promised."""
    active = ActivePromises()
    active.arrived([(SLOW, 0), (FAST, 0)], NOW_S, COSTS)
    active.arrived([(replace(FAST, expected_tokens=1.0), 0)], NOW_S, COSTS)
    assert active.promised(NOW_S).round_s > 0.9 * 0.5
    for _ in range(100):
        active.arrived([(replace(FAST, expected_tokens=1.0), 0)], NOW_S, COSTS)
    assert active.promised(NOW_S).round_s == pytest.approx(0.125, rel=0.05), "rounds that stay short do count"


def test_blocks_that_come_together_count_as_one_after_the_other() -> None:
    survivals = (0.9, 0.5, 0.1)
    drafted = block("a", slack_s=1.0, cost=VerifyCost(4, 500), expected_tokens=2.5, survivals=survivals)
    blocks = [(SLOW, 0), (drafted, 0), (block("none"), 0), (replace(drafted, generation="cold"), 3), (FAST, 0)]
    together, apart = ActivePromises(), ActivePromises()
    together.arrived(blocks, NOW_S, COSTS)
    for one in blocks:
        apart.arrived([one], NOW_S, COSTS)
    assert astuple(together.promised(NOW_S)) == pytest.approx(astuple(apart.promised(NOW_S)))


def test_a_draft_that_may_be_cut_counts_as_it_is_cheapest_beside_as_it_came() -> None:
    """Of a row that costs nothing all are kept, of dear ones none that survive less often than they cost."""
    survivals = (0.8, 0.01)
    drafted = block("a", slack_s=1.0, cost=VerifyCost(3, 500), expected_tokens=1.81, survivals=survivals)
    dear = replace(COSTS, seconds_per_token=1.0)
    free = replace(COSTS, seconds_per_token=0.0, seconds_per_interaction=0.0)
    for model, kept in ((COSTS, 1), (dear, 0), (free, 2)):
        active = ActivePromises()
        active.arrived([(drafted, 0)], NOW_S, model)
        pace = PromisedNeed(4.0, 1.0 + sum(survivals[:kept]), VerifyCost(1 + kept, 500))
        whole = PromisedNeed(4.0, 1.81, VerifyCost(3, 500))
        assert active.promised(NOW_S).least_load == pytest.approx(load_of(pace, model))
        assert active.promised(NOW_S).load == pytest.approx(load_of(whole, model))


def test_best_effort_counts_for_nothing() -> None:
    active = ActivePromises()
    active.arrived([(block("a"), 0)], NOW_S, COSTS)
    active.arrived([(block("b", cost=VerifyCost(500, 0)), 499)], NOW_S, COSTS)
    assert active.promised(NOW_S) == Promised()


def test_prompts_count_as_they_have_come_lately() -> None:
    active = ActivePromises()
    prefix_s = added_s(VerifyCost(299, 200), COSTS)
    cold = block("a", slack_s=1.0, cost=VerifyCost(300, 200))
    active.arrived([(cold, 299)], NOW_S, COSTS)
    assert active.promised(NOW_S).load == pytest.approx(prefix_s / 30.0)
    assert active.promised(NOW_S).round_s == INFINITY, "its rounds are not known yet"
    assert active.promised(NOW_S).least_load == active.promised(NOW_S).load
    assert active.promised(NOW_S + 15.0).load == pytest.approx(prefix_s / 30.0 * exp(-0.5))
    for _ in range(2):
        active.arrived([(cold, 299)], NOW_S + 30.0, COSTS)
    assert active.promised(NOW_S + 30.0).load == pytest.approx(prefix_s / 30.0 * (2.0 + exp(-1.0)))


def test_so_many_prompts_a_second_are_their_seconds_a_second() -> None:
    active, cold = ActivePromises(), block("a", slack_s=1.0, cost=VerifyCost(300, 200))
    for number in range(3000):
        active.arrived([(cold, 299)], NOW_S + number / 10.0, COSTS)
    assert active.promised(NOW_S + 300.0).load == pytest.approx(10.0 * added_s(VerifyCost(299, 200), COSTS), rel=0.01)


def test_a_block_that_lost_its_prefix_changes_no_pace() -> None:
    active = ActivePromises()
    active.arrived([(FAST, 0)], NOW_S, COSTS)
    active.arrived([(block("fast", slack_s=0.1, tokens_per_s=8.0, cost=VerifyCost(500, 0)), 490)], NOW_S, COSTS)
    assert astuple(active.promised(NOW_S + 1e6)) == pytest.approx(told(load(8.0, 4.0), 0.5))
