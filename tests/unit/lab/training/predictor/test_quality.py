"""Against the paper's own counts, and definitions written out."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.training.predictor.quality import (
    Confusion,
    calibration_error,
    confusion,
    feature_trend,
    latency,
    log_loss,
    quality,
    waste_at_coverage,
)
from lab.training.ranking import area_under_curve
from outrider.contracts.errors import ShapeError

# WISP table 10 (TN, FP, FN, TP) and the row of table 4 that it comes to: accuracy, Rec1, specificity, FPR, BalAcc.
PAPER = {
    "MLP": ((92, 68, 112, 451), (0.7510, 0.8011, 0.5750, 0.4250, 0.6881)),
    "LightGBM": ((25, 153, 33, 513), (0.7431, 0.9396, 0.1404, 0.8596, 0.5400)),
    "RandomForest": ((27, 151, 33, 513), (0.7459, 0.9396, 0.1517, 0.8483, 0.5457)),
    "XGBoost": ((36, 142, 37, 509), (0.7528, 0.9322, 0.2022, 0.7978, 0.5672)),
}
labelled = st.lists(st.tuples(st.integers(0, 20).map(lambda n: n / 20), st.integers(0, 1)), min_size=1, max_size=60)


@pytest.mark.parametrize("model", list(PAPER))
def test_the_papers_counts_give_the_papers_shares(model: str) -> None:
    counts, shares = PAPER[model]
    found = Confusion(*counts)
    told = (
        found.accuracy,
        found.recall_accepted,
        found.specificity,
        found.false_positive_rate,
        found.balanced_accuracy,
    )
    assert told == pytest.approx(shares, abs=1.1e-4)  # printed from shares that were rounded


def test_each_token_is_counted_once_where_it_belongs() -> None:
    says = np.array([True, True, False, False, True])
    assert confusion(says, [1, 0, 1, 0, 1]) == Confusion(1, 1, 1, 2)
    with pytest.raises(ShapeError, match="one number for each of 2 labels, found 5"):
        confusion(says, [1, 0])


def test_a_class_that_does_not_occur_has_no_share() -> None:
    only = confusion(np.array([True, False]), [1, 1])
    assert (only.specificity, only.false_positive_rate, only.balanced_accuracy) == (None, None, None)
    assert only.recall_accepted == 0.5
    assert Confusion(0, 0, 0, 0).accuracy is None


@given(labelled)
def test_waste_is_that_of_the_best_threshold_with_that_coverage(tokens: list[tuple[float, int]]) -> None:
    scores, labels = np.array([score for score, _ in tokens]), [label for _, label in tokens]
    found = waste_at_coverage(scores, labels, 0.8)
    if len(set(labels)) < 2:
        assert found is None
        return
    wastes = list[float]()
    for threshold in np.unique(scores):
        told = confusion(scores >= threshold, labels)
        assert told.recall_accepted is not None
        if told.recall_accepted >= 0.8 - 1e-12:
            assert told.false_positive_rate is not None
            wastes.append(told.false_positive_rate)
    assert found == min(wastes)


def test_the_calibration_error_is_the_mean_gap() -> None:
    probs = np.array([0.9, 0.9, 0.9, 0.9, 0.1, 0.1])
    assert calibration_error(probs, [1, 1, 1, 0, 0, 0]) == pytest.approx((4 * 0.15 + 2 * 0.1) / 6)
    assert calibration_error(np.array([0.0, 1.0]), [0, 1]) == 0.0
    assert calibration_error(np.array([]), []) is None


@given(labelled)
def test_the_error_of_a_certain_model_is_its_error(tokens: list[tuple[float, int]]) -> None:
    labels = np.array([label for _, label in tokens])
    assert calibration_error(np.ones(len(labels)), labels) == pytest.approx(1.0 - labels.mean())


def test_the_loss_is_finite_for_who_is_certain_and_wrong() -> None:
    assert log_loss(np.array([0.25, 0.5]), [1, 0]) == pytest.approx((np.log(4) + np.log(2)) / 2)
    assert log_loss(np.array([0.0]), [1]) == pytest.approx(-np.log(1e-7))


def test_decisions_are_what_the_model_says_and_probabilities_what_was_made_of_it() -> None:
    raw, calibrated, labels = np.array([0.2, 0.5, 0.7, 0.4]), np.array([0.6, 0.8, 0.9, 0.7]), [0, 1, 1, 1]
    found = quality(raw, calibrated, labels)
    assert found.confusion == Confusion(1, 0, 1, 2)
    assert found.auc == area_under_curve(raw, labels) == 1.0
    assert found.raw_error == calibration_error(raw, labels)
    assert found.error == calibration_error(calibrated, labels)
    assert found.loss == log_loss(calibrated, labels)
    assert (found.tokens, found.accepted_share) == (4, 0.75)


def test_a_trend_has_the_feature_in_order() -> None:
    values = np.array([3.0, 1.0, 2.0, 4.0])
    found = feature_trend("margin", values, [1, 0, 0, 1], bins=2)
    assert found.bins == ((1.5, 0.0, 2), (3.5, 1.0, 2))
    assert found.correlation == pytest.approx(np.corrcoef(values, [1, 0, 0, 1])[0, 1])
    assert feature_trend("margin", np.ones(3), [0, 1, 1]).correlation is None
    assert json.dumps(found.bins), "plain numbers"


def test_latencies_are_in_milliseconds() -> None:
    found = latency([0.001, 0.003, 0.002, 0.010])
    assert (found.mean_ms, found.median_ms, found.min_ms, found.max_ms) == pytest.approx((4.0, 2.5, 1.0, 10.0))
    assert found.p95_ms <= found.p99_ms <= found.max_ms
