from itertools import product
from random import Random

import pytest

from lab.bench.stops.bound import Round, waste


def test_waste_is_what_is_drafted_behind_the_first_rejection() -> None:
    one = Round((0.9, 0.8, 0.7, 0.2), (True, False, True, True))
    assert (one.accepted_len, one.drafted(0.0), one.drafted(0.5), one.drafted(0.85)) == (1, 4, 3, 1)
    whole, half, early = (waste([one], threshold) for threshold in (0.0, 0.5, 0.85))
    assert (whole.bound, whole.wasted, whole.accepted) == (3.0, 3.0, 1.0)
    assert (half.bound, half.wasted, half.false_alarms) == (3.0, 2.0, 1.0)
    assert (early.bound, early.wasted, early.false_alarms) == (0.0, 0.0, 0.0)


def test_what_is_wasted_stays_under_the_bound_though_it_need_not_follow_it() -> None:
    rng = Random(1)
    rounds = [
        Round(tuple(rng.random() for _ in accepted), accepted)
        for accepted in product((False, True), repeat=4)
        for _ in range(20)
    ]
    found = [waste(rounds, threshold) for threshold in (0.0, 0.3, 0.6, 1.0)]
    assert all(one.wasted <= one.bound for one in found)
    assert found[0].wasted == pytest.approx(found[0].bound), "nobody stops"
    assert (found[-1].wasted, found[-1].accepted) == (0.0, 0.0), "who always stops wastes nothing, and brings nothing"
