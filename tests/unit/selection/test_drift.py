"""The drift test: how often it is wrong, and how soon it sees."""

import random

import pytest

from outrider.selection.drift import RejectionDrift


def judged_until_alarm(drift: RejectionDrift, share: float, most: int, rng: random.Random) -> int | None:
    """Mismatches, one by one."""
    for count in range(1, most + 1):
        drift.observe(int(rng.random() < share), 1)
        if drift.alarmed:
            return count
    return None


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_false_alarms_are_as_rare_as_stated_however_often_it_is_looked_at(share: float) -> None:
    alarms = sum(
        judged_until_alarm(RejectionDrift(share, share, false_alarms=0.1), share, 1500, random.Random(seed)) is not None
        for seed in range(300)
    )
    assert alarms <= 300 * 0.1, "it is a bound, and looked at 1500 times"


@pytest.mark.parametrize(("expected", "found"), [(0.3, 0.6), (0.6, 0.3), (0.05, 0.3), (0.0, 0.1), (1.0, 0.9)])
def test_a_change_is_seen_within_some_hundred_mismatches(expected: float, found: float) -> None:
    seen = [
        judged_until_alarm(RejectionDrift(expected, expected), found, 1500, random.Random(seed)) for seed in range(20)
    ]
    assert all(count is not None and 200 <= count <= 700 for count in seen)


def test_nothing_is_said_before_two_hundred_mismatches() -> None:
    drift = RejectionDrift(0.1, 0.1)
    drift.observe(199, 199)
    assert not drift.alarmed
    drift.observe(1, 1)
    assert drift.alarmed
    drift.observe(0, 10_000)
    assert drift.alarmed, "for good"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_judge_that_always_says_the_same_never_alarms_as_long_as_it_does(share: float) -> None:
    drift = RejectionDrift(share, share)
    for _ in range(100_000):
        drift.observe(int(share), 1)
    assert not drift.alarmed
    drift.observe(1 - int(share), 1)
    assert drift.alarmed


@pytest.mark.parametrize("share", [0.25, 0.28, 0.31])
def test_a_share_between_those_of_calibration_is_none_that_drifted(share: float) -> None:
    alarms = sum(
        judged_until_alarm(RejectionDrift(0.25, 0.31), share, 20_000, random.Random(seed)) is not None
        for seed in range(20)
    )
    assert alarms <= 1


def test_a_head_that_rejects_more_than_in_calibration_harms_nobody_and_has_not_drifted() -> None:
    drift = RejectionDrift(0.87, 1.0)
    drift.observe(10_000, 10_000)
    assert not drift.alarmed
    drift.observe(0, 5_000)
    assert drift.alarmed
