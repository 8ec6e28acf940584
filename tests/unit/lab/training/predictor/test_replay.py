import numpy as np
import pytest
from scipy.special import expit

from lab.training.predictor.drafted import DraftedTokens
from lab.training.predictor.quality import log_loss, replay
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.recalibration import ChainVerdict, Recalibration, SentChain

RATIO = AcceptanceRule.RATIO


def tokens_of(accepted: list[int], prompt: list[int], temperature: list[float]) -> DraftedTokens:
    count = len(accepted)
    return DraftedTokens(np.zeros((count, 4)), np.array(accepted), np.array(temperature), np.array(prompt))


def test_each_round_is_told_by_what_those_before_it_taught() -> None:
    """Rounds: rejected; cut by the window; the rest of the response; another temperature; another response."""
    accepted = [1, 0, 1, 1, 1, 1, 1]
    tokens = tokens_of(accepted, [0, 0, 0, 0, 0, 0, 1], [0.7, 0.7, 0.7, 0.7, 0.7, 1.0, 0.7])
    logits = np.array([0.5, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1])
    recalibration, told = Recalibration({}), []
    for first, last, temperature in ((0, 2, 0.7), (2, 4, 0.7), (4, 5, 0.7), (5, 6, 1.0), (6, 7, 0.7)):
        own = tuple(logits[first:last].tolist())
        known = recalibration.calibration(RATIO, temperature)
        told += [known.probability(logit) for logit in own]
        front = sum(accepted[first:last])
        recalibration.learn(ChainVerdict(SentChain(RATIO, temperature, own), front, front < len(own)))
    found = replay(logits, tokens, RATIO, window_tokens=2)
    assert list(found) == ["all", "0.7", "1"]
    assert found["all"].loss == pytest.approx(log_loss(np.array(told), tokens.accepted))
    assert found["1"].loss == found["1"].loss_before == pytest.approx(np.log(2.0))


def test_what_is_wrong_throughout_is_set_right() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0.5, 1.5, 2000)
    accepted = (rng.uniform(size=2000) < expit(0.6 * logits - 0.8)).astype(int).tolist()
    found = replay(logits, tokens_of(accepted, [0] * 2000, [0.7] * 2000), RATIO, window_tokens=8)
    assert list(found) == ["all"], "one temperature"
    one = found["all"]
    assert one.loss < one.loss_before - 0.05
    assert one.error is not None
    assert one.error_before is not None
    assert one.error < 0.3 * one.error_before
