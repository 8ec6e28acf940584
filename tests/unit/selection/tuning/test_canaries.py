"""Who is sent, and what their speeds say."""

import pytest

from outrider.selection.modes import DRAFT
from outrider.selection.tuning.canaries import Canaries, CanaryResult, canary_count
from outrider.selection.tuning.epoch_samples import ThroughputSample


def named(count: int) -> list[str]:
    return [f"g{number}" for number in range(count)]


def test_few_are_sent_and_never_all() -> None:
    assert [canary_count(count) for count in (0, 1, 2, 11, 12, 100)] == [0, 0, 1, 1, 3, 3]


def test_the_newest_go_first_and_everybody_once() -> None:
    canaries, sent = Canaries(), list[str]()
    for _ in range(4):
        canaries.send(DRAFT, named(3))
        sent += canaries.out
        canaries.recall()
        assert canaries.mode is None
        assert not canaries.out
    assert sent == ["g2", "g1", "g0", "g2"]


def test_canaries_are_out_until_the_last_of_them_ends() -> None:
    canaries = Canaries()
    canaries.send(DRAFT, named(12))
    assert canaries.out == {"g9", "g10", "g11"}
    for name in ("g9", "g11", "other"):
        canaries.ended(name)
    assert canaries.mode is DRAFT
    canaries.ended("g10")
    assert canaries.mode is None


def test_speeds_are_compared_with_those_of_the_others() -> None:
    """The middle one of three, so that one odd device says nothing; nothing can be said without rounds."""
    canaries = Canaries()
    canaries.send(DRAFT, named(12))
    samples = {name: ThroughputSample(tokens=10, seconds=1.0, rounds=10) for name in named(12)}
    samples |= {
        "g9": ThroughputSample(1, 1, 1.0, 1),
        "g10": ThroughputSample(12, 20, 1.0, 4),
        "g11": ThroughputSample(90, 900, 1.0, 9),
    }
    assert canaries.ratio(samples, None) == pytest.approx(1.2)
    assert canaries.ratio(samples, 10.0) == pytest.approx(1.2)
    assert canaries.ratio(samples, 10.5) == pytest.approx(1.2), "noise"
    assert canaries.ratio(samples, 12.5) == pytest.approx(1.2 * (1.0 - 3 * 0.15)), (
        "all would cost everybody more than three"
    )
    assert canaries.fewest_rounds(samples) == 1.0
    assert canaries.ratio(dict.fromkeys(named(12), ThroughputSample()), 10.0) is None


def test_the_better_canaries_did_the_less_a_try_should_cost() -> None:
    verdicts = [CanaryResult(DRAFT, ratio, 4.0, 0.0) for ratio in (0.5, 0.9, 1.5, 2.0)]
    assert [verdict.loss for verdict in verdicts] == pytest.approx([0.6, 0.2, 0.1, 0.1])
    assert [verdict.lost for verdict in verdicts] == [True, False, False, False]
