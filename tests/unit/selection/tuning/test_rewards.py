import random

import pytest

from outrider.selection.tuning.epoch_samples import EpochThroughput, trimmed_mean
from outrider.selection.tuning.rewards import Rewards, load_cell


def found(load: float, tokens_per_s: float, late: float | None = None) -> EpochThroughput:
    return EpochThroughput(load, tokens_per_s, late, 1.0)


def test_each_load_up_to_eight_has_a_cell_and_wider_ones_follow() -> None:
    assert [load_cell(load) for load in (0.3, 1.0, 2.4, 7.6, 8.4)] == [1, 1, 2, 8, 8]
    cells = [load_cell(load) for load in range(1, 257)]
    assert cells == sorted(cells)
    assert len(set(cells)) < 26
    assert load_cell(16.0) != load_cell(20.0) != load_cell(25.0)


def test_a_trimmed_mean_leaves_a_quarter_out_at_either_end() -> None:
    assert trimmed_mean([5.0]) == 5.0
    assert trimmed_mean([4.0, 6.0]) == 5.0
    assert trimmed_mean([5.0, 1000.0, 0.0]) == 5.0
    assert trimmed_mean([0.0, 4.0, 6.0, 1000.0]) == 5.0


def test_a_ratio_is_borrowed_from_the_nearest_loads_and_less_sure_there() -> None:
    rewards = Rewards()
    for load, none, draft in ((2.0, 50.0, 75.0), (16.0, 20.0, 10.0)):
        rewards.observe("none", found(load, none))
        rewards.observe("draft", found(load, draft))
    at, near, between = (rewards.compare("draft", "none", load) for load in (2.0, 3.0, 5.7))
    assert at.log_ratio > 0.38
    assert at.deviation < near.deviation < between.deviation
    assert near.log_ratio > 0.3
    assert -0.3 < between.log_ratio < 0.2
    assert at.known
    assert near.known
    assert not between.known
    assert not rewards.compare("draft", "lookup", 2.0).known


def test_loads_that_differ_within_a_cell_are_no_difference_between_modes() -> None:
    rewards = Rewards()
    rewards.observe("none", found(16.0, 20.0))
    rewards.observe("draft", found(17.0, 20.0 * (16.0 / 17.0) ** 0.5))
    assert rewards.compare("draft", "none", 16.5).log_ratio == pytest.approx(0.0, abs=1e-9)


def test_one_odd_epoch_is_noise_and_two_are_a_change() -> None:
    rewards, rng = Rewards(), random.Random(5)
    for _ in range(20):
        assert not rewards.observe("none", found(4.0, 50.0 * rng.gauss(1.0, 0.05)))
    assert not rewards.observe("none", found(4.0, 25.0))
    (known,) = rewards.of("none")
    assert known.tokens_per_s == pytest.approx(50.0, rel=0.06)
    assert rewards.surprise("none", 4.0) < -0.5
    assert rewards.observe("none", found(4.0, 25.0))
    (known,) = rewards.of("none")
    assert known.tokens_per_s == 25.0


def test_what_is_hardly_known_is_neither_better_nor_worse() -> None:
    rewards = Rewards()
    rewards.observe("none", found(4.0, 50.0))
    rewards.observe("draft", EpochThroughput(4.0, 55.0, None, 1.0, variance=0.05))
    unsure = rewards.compare("draft", "none", 4.0)
    assert not unsure.better(0.03)
    assert not unsure.no_better(0.03)
    for _ in range(40):
        rewards.observe("none", found(4.0, 50.0))
        rewards.observe("draft", found(4.0, 55.0))
    assert rewards.compare("draft", "none", 4.0).better(0.03)
    assert rewards.compare("none", "draft", 4.0).no_better(0.03)
