"""When a mode's turn comes again."""

from outrider.selection.tuning.probing import ProbeRules, Probes
from outrider.selection.tuning.rewards import Comparison

_KNOWN = Comparison(log_ratio=-0.1, deviation=0.01, distance=0.0)


def turns(probes: Probes, *at_s: float) -> list[bool]:
    """Whether it is the mode's turn at these times."""
    return [probes.due("draft", _KNOWN, 1.0, now_s) for now_s in at_s]


def test_what_lost_waits_ever_longer() -> None:
    probes = Probes(ProbeRules(allowance_s=10.0))
    probes.spent("draft", 0.0, 0.0, lost=True)
    assert turns(probes, 4.0, 6.0) == [False, True]
    probes.spent("draft", 0.0, 10.0, lost=True)
    assert turns(probes, 19.0, 21.0) == [False, True]


def test_a_change_shortens_the_wait_but_not_to_nothing() -> None:
    probes = Probes(ProbeRules(allowance_s=10.0))
    for at_s in (0.0, 0.0, 0.0, 0.0, 0.0):
        probes.spent("draft", 0.0, at_s, lost=True)
    assert turns(probes, 79.0, 81.0) == [False, True]
    probes.forget_losses()
    assert turns(probes, 29.0, 31.0) == [False, True]


def test_a_change_never_makes_a_wait_longer() -> None:
    probes = Probes(ProbeRules(allowance_s=10.0))
    probes.spent("draft", 0.0, 0.0, lost=True)
    probes.forget_losses()
    assert turns(probes, 4.0, 6.0) == [False, True]


def test_nothing_is_tried_beyond_what_was_saved() -> None:
    probes = Probes(ProbeRules(share=0.02, allowance_s=0.0))
    assert turns(probes, 0.0) == [False]
    probes.passes(6.0)
    assert turns(probes, 6.0) == [True]
    probes.spent("draft", 1.0, 6.0, lost=False)
    probes.passes(20.0)
    assert turns(probes, 26.0) == [False]
