from bisect import bisect_left, bisect_right

import pytest

from lab.simulation.acceptance_models import SimPredictor
from lab.simulation.chance import uniforms
from lab.simulation.stopping import UNCHANGED, Calibrated, Flags, SimFeatures, flagging
from outrider.contracts.errors import ParameterError
from outrider.drafting.stops import SendAndStop, StopBefore

TOKENS = 40_000


def told(foreteller: Calibrated | Flags, chance: float) -> list[tuple[float, bool]]:
    """What it tells of many tokens, and whether they are accepted."""
    draws, luck = (uniforms(1, 0, 1, purpose, TOKENS) for purpose in (1, 2))
    return [
        (foreteller.predict(chance, lucky, accepted=draw < chance), draw < chance)
        for draw, lucky in zip(draws, luck, strict=True)
    ]


def auc(pairs: list[tuple[float, bool]]) -> float:
    """How often an accepted token is told more than a rejected one; a tie counts half."""
    good, bad = ([value for value, accepted in pairs if accepted is wanted] for wanted in (True, False))
    bad.sort()
    return sum(bisect_left(bad, value) + bisect_right(bad, value) for value in good) / (2 * len(good) * len(bad))


@pytest.mark.parametrize("sharp", [0.5, 0.767, 0.9])
@pytest.mark.parametrize("chance", [0.4, 0.875])
def test_what_is_told_is_as_sharp_as_stated_and_right(sharp: float, chance: float) -> None:
    pairs = told(Calibrated(sharp), chance)
    assert auc(pairs) == pytest.approx(sharp, abs=0.01)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        within = [(value, accepted) for value, accepted in pairs if low <= value < low + 0.2]
        if len(within) > 1000:
            mean_told, accepted_share = (sum(pair[index] for pair in within) / len(within) for index in (0, 1))
            assert accepted_share == pytest.approx(mean_told, abs=0.03)


def test_at_wisps_auc_it_can_do_what_wisps_does() -> None:
    rates, chance, foreteller = SimPredictor(), 0.8, Calibrated(0.767)
    threshold = foreteller.threshold(chance, rates.recall)
    pairs = told(foreteller, chance)
    for wanted, share in ((True, rates.recall), (False, rates.false_positive_rate)):
        passed = [value >= threshold for value, accepted in pairs if accepted is wanted]
        assert sum(passed) / len(passed) == pytest.approx(share, abs=0.015)


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_what_is_certain_is_told(chance: float) -> None:
    assert Calibrated(0.9).predict(chance, 0.3, accepted=chance == 1.0) == chance


def test_a_yes_or_no_is_believed_as_far_as_it_is_right() -> None:
    flags, chance = Flags(SimPredictor(recall=0.8, false_positive_rate=0.425)), 0.8
    pairs = told(flags, chance)
    for said in (0.0, 1.0):
        of_these = [accepted for value, accepted in pairs if value == said]
        assert flags.believed(chance, said) == pytest.approx(sum(of_these) / len(of_these), abs=0.02)
    assert Flags(SimPredictor(0.0, 0.0)).believed(0.8, 1.0) == 0.0


def test_the_products_rules_go_by_what_is_told() -> None:
    assert isinstance(flagging(SimPredictor()).rule, SendAndStop)
    assert isinstance(flagging(SimPredictor(sends_flagged=False)).rule, StopBefore)
    assert UNCHANGED.probability(SimFeatures(0.37)) == pytest.approx(0.37)


def test_an_auc_that_no_signal_has_is_refused() -> None:
    for wrong in (0.49, 1.0):
        with pytest.raises(ParameterError, match=r"auc needs a number in \[0.5, 1\)"):
            Calibrated(wrong)
