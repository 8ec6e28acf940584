import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafting.acceptance import ConfidenceLogistic
from outrider.drafting.features import DraftFeatures
from outrider.drafting.stops import NeverStop, SendAndStop, StopBefore, StopDecision


def row(confidence: float) -> DraftFeatures:
    return DraftFeatures(np.array([confidence, 1.0 - confidence]))


@dataclass(frozen=True)
class Fixed:
    """A predictor that says the same of all rows."""

    says: float

    def probability(self, features: DraftFeatures) -> float:  # noqa: ARG002 (interface)
        return self.says


@pytest.mark.parametrize(
    ("acceptance", "before", "sent"),
    [
        (0.39, StopDecision.STOP, StopDecision.DRAW_LAST),
        (0.4, StopDecision.DRAW, StopDecision.DRAW),
        (0.41, StopDecision.DRAW, StopDecision.DRAW),
    ],
)
def test_a_token_is_flagged_below_the_threshold(acceptance: float, before: StopDecision, sent: StopDecision) -> None:
    features = row(0.7)
    assert StopBefore(Fixed(acceptance), 0.4).step(features) is before
    assert SendAndStop(Fixed(acceptance), 0.4).step(features) is sent
    assert NeverStop().step(features) is StopDecision.DRAW


def test_who_asks_nothing_says_so() -> None:
    assert not NeverStop.asks
    assert StopBefore.asks
    assert SendAndStop.asks


@given(st.floats(0.5, 1.0), st.floats(-5.0, 5.0), st.floats(-5.0, 5.0))
def test_the_logistic_is_one(confidence: float, weight: float, bias: float) -> None:
    found = ConfidenceLogistic(weight, bias).probability(row(confidence))
    assert 0.0 <= found <= 1.0
    if confidence < 1.0 - 1e-6:
        odds = math.exp(bias) * (confidence / (1.0 - confidence)) ** weight
        assert found == pytest.approx(odds / (1.0 + odds), rel=1e-9)


def test_as_it_stands_the_logistic_takes_confidence_for_acceptance() -> None:
    assert ConfidenceLogistic().probability(row(0.8)) == pytest.approx(0.8)
    assert ConfidenceLogistic().probability(row(1.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("score", [-1e6, 1e6])
def test_no_score_is_too_large(score: float) -> None:
    assert ConfidenceLogistic(bias=score).probability(row(0.5)) == (score > 0)
