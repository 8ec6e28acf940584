import numpy as np
import pytest
from scipy.special import expit

from lab.training.predictor.logistic import fit_logistic, fit_platt, learn_online, logits
from lab.training.predictor.quality import calibration_error
from lab.training.ranking import area_under_curve


def test_the_parameters_that_made_the_labels_are_found() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40_000, 2)) * [1.0, 30.0] + [0.0, 100.0]
    labels = rng.uniform(size=len(inputs)) < expit(inputs @ [1.5, -0.05] + 5.0)
    found = fit_logistic(inputs, labels.astype(np.float64))
    assert found.weights == pytest.approx([1.5, -0.05], rel=0.05)
    assert found.bias == pytest.approx(5.0, rel=0.05)


def test_what_is_separable_has_a_fit() -> None:
    found = fit_logistic(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]))
    assert np.isfinite([found.bias, *found.weights]).all()


def test_scores_become_true_probabilities_in_the_same_order() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=20_000) * 3.0
    accepted = (rng.uniform(size=len(scores)) < expit(0.4 * scores + 1.0)).astype(np.int64)
    platt = fit_platt(scores[:10_000], accepted[:10_000])
    raw, probs, labels = expit(scores[10_000:]), platt.probs(scores[10_000:]), accepted[10_000:]
    before, after = calibration_error(raw, labels), calibration_error(probs, labels)
    assert before is not None
    assert after is not None
    assert after < 0.02 < before
    assert area_under_curve(probs, labels) == area_under_curve(raw, labels)


def test_a_score_that_is_wrong_way_round_is_not_turned() -> None:
    scores = np.array([2.0, 1.0, -1.0, -2.0])
    platt = fit_platt(scores, np.array([0, 0, 1, 1]))
    assert platt.slope == 0.0
    assert platt.probs(scores) == pytest.approx(0.5, abs=1e-3)


def test_logits_are_those_of_probabilities_and_finite() -> None:
    assert expit(logits(np.array([0.3, 0.8]))) == pytest.approx([0.3, 0.8])
    assert np.isfinite(logits(np.array([0.0, 1.0]))).all()


def test_the_online_one_comes_near_to_what_made_the_labels() -> None:
    rng = np.random.default_rng(2)
    confidences = rng.uniform(0.05, 0.999, 20_000)
    x = np.log(confidences / (1.0 - confidences))
    accepted = (rng.uniform(size=len(x)) < expit(0.6 * x + 0.8)).astype(np.int64)
    found = learn_online(confidences, accepted)
    assert found.weight == pytest.approx(0.6, abs=0.1)
    assert found.bias == pytest.approx(0.8, abs=0.15)
    assert learn_online(confidences[:0], accepted[:0]).weight == 1.0, "without tokens it is the confidence"
    certain = learn_online(np.ones(5), np.zeros(5, np.int64))
    assert np.isfinite([certain.weight, certain.bias]).all()
