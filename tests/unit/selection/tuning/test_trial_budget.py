"""When a mode's turn comes again."""

from outrider.selection.tuning.rewards import Comparison
from outrider.selection.tuning.trial_budget import TrialBudget

_KNOWN = Comparison(log_ratio=-0.1, deviation=0.01, distance=0.0)


def with_budget(left_s: float) -> TrialBudget:
    trials = TrialBudget()
    trials.left_s = left_s
    return trials


def turns(trials: TrialBudget, *at_s: float) -> list[bool]:
    """Whether it is the mode's turn at these times."""
    return [trials.due("draft", _KNOWN, 1.0, now_s) for now_s in at_s]


def test_what_lost_waits_ever_longer() -> None:
    trials = with_budget(10.0)
    trials.spent("draft", 0.0, 0.0, lost=True)
    assert turns(trials, 4.0, 6.0) == [False, True]
    trials.spent("draft", 0.0, 10.0, lost=True)
    assert turns(trials, 19.0, 21.0) == [False, True]


def test_a_change_shortens_the_wait_but_not_to_nothing() -> None:
    trials = with_budget(10.0)
    for at_s in (0.0, 0.0, 0.0, 0.0, 0.0):
        trials.spent("draft", 0.0, at_s, lost=True)
    assert turns(trials, 79.0, 81.0) == [False, True]
    trials.forget_losses()
    assert turns(trials, 29.0, 31.0) == [False, True]


def test_a_change_never_makes_a_wait_longer() -> None:
    trials = with_budget(10.0)
    trials.spent("draft", 0.0, 0.0, lost=True)
    trials.forget_losses()
    assert turns(trials, 4.0, 6.0) == [False, True]


def test_nothing_is_tried_beyond_what_was_saved() -> None:
    trials = with_budget(0.0)
    assert turns(trials, 0.0) == [False]
    trials.accrue(6.0)
    assert turns(trials, 6.0) == [True]
    trials.spent("draft", 1.0, 6.0, lost=False)
    trials.accrue(20.0)
    assert turns(trials, 26.0) == [False]
