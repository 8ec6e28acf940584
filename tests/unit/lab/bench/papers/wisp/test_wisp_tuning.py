"""The search of settings: what is tried, what is kept, and the points of WISP's predictor."""

import pytest

from lab.bench.papers.wisp.tuning import OUR_CHANGES, OUR_START, WISP_CHANGES, WISP_START, predictor_at, search
from lab.simulation.acceptance_models import SimPredictor
from lab.simulation.settings import Tuning
from outrider.scheduling.wisp import Wisp


def test_other_thresholds_lie_on_the_curve_through_the_printed_point() -> None:
    printed = SimPredictor()
    same = predictor_at(printed.recall)
    assert same is not None
    assert same.false_positive_rate == pytest.approx(printed.false_positive_rate)
    rates = [found.false_positive_rate for recall in (0.5, 0.8, 0.9, 0.99) if (found := predictor_at(recall))]
    assert rates == sorted(rates)
    assert predictor_at(1.0) is None, "a predictor that flags nothing"


def test_ours_has_no_more_tries_than_its_rival() -> None:
    assert len(WISP_CHANGES) >= len(OUR_CHANGES)
    assert {change.axis for change in WISP_CHANGES} >= {"window", "first token"}, "what helps ours is tried for both"
    for start, changes in ((WISP_START, WISP_CHANGES), (OUR_START, OUR_CHANGES)):
        assert all(change.of(start) != start for change in changes)


def test_a_change_is_kept_if_the_score_rises_and_later_ones_build_on_it() -> None:
    asked = list[Tuning]()

    def score(_: str, tuning: Tuning) -> float:
        asked.append(tuning)
        assert isinstance(tuning.policy, Wisp)
        return 1.0 + tuning.policy.marginal - (tuning.policy.guard_s or 0.0)

    found = search(WISP_START, WISP_CHANGES, score)
    assert found.chosen == {"utility": "marginal"}
    assert (found.start_score, found.score) == (1.0, 2.0)
    assert [label for label, _ in found.tried] == ["start", *map(str, WISP_CHANGES)]
    assert asked[-1] != WISP_START
    assert len(asked) == len(set(asked)), "nothing is tried twice"
