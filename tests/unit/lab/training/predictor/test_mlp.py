"""The perceptron learns what can be learnt, and what is exported is what was trained."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit

from lab.training.predictor.drafted import DraftedTokens
from lab.training.predictor.logistic import fit_platt
from lab.training.predictor.mlp import (
    EarlyStopping,
    MlpFit,
    MlpSettings,
    calibrated,
    drawn_settings,
    fit_mlp,
    search_mlp,
)
from lab.training.predictor.quality import calibration_error, confusion
from lab.training.ranking import area_under_curve
from tests.unit.lab.training.predictor.toy import toy, truth

SMALL = MlpSettings(hidden=(32, 16), learning_rate=3e-3, batch=64)
SHORT = EarlyStopping(epochs=12, patience=4)


def fitted(settings: MlpSettings = SMALL, shift: float = 0.0, seed: int = 0) -> MlpFit:
    return fit_mlp(toy(0, 3000, shift), toy(1, shift=shift), settings, SHORT, seed)


def test_what_can_be_told_is_told() -> None:
    found, part = fitted(), toy(2, 4000)
    best = area_under_curve(truth(part.features), part.accepted)
    auc = area_under_curve(found.perceptron.scores(part.features), part.accepted)
    assert best is not None
    assert auc is not None
    assert auc > best - 0.01


def test_classes_are_balanced_however_rare_one_is() -> None:
    found, part = fitted(shift=0.45), toy(2, 4000, shift=0.45)
    assert part.accepted.mean() > 0.7
    told = confusion(found.perceptron.scores(part.features) >= 0.0, part.accepted)
    assert told.recall_accepted is not None
    assert told.specificity is not None
    assert abs(told.recall_accepted - told.specificity) < 0.2
    assert told.specificity > 0.55


def test_calibrated_probabilities_are_true_and_in_the_same_order() -> None:
    found, part, test = fitted(shift=0.45), toy(3, 4000, shift=0.45), toy(4, 4000, shift=0.45)
    platt = fit_platt(found.perceptron.scores(part.features), part.accepted)
    true = calibrated(found.perceptron, platt)
    before, after = (
        calibration_error(expit(one.scores(test.features)), test.accepted) for one in (found.perceptron, true)
    )
    assert before is not None
    assert after is not None
    assert after < 0.03 < before, "balanced classes say too little"
    expected = platt.probs(found.perceptron.scores(test.features))
    assert expit(true.scores(test.features)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_what_is_exported_is_what_was_best_in_validation(batch_norm: bool) -> None:
    """The balanced loss, computed anew from the exported layers, is the one that was seen while training."""
    settings = replace(SMALL, batch_norm=batch_norm, batch=37, dropout=0.2)
    found, part = fitted(settings), toy(1)
    scores, labels = found.perceptron.scores(part.features), part.accepted
    losses = np.logaddexp(0.0, scores) - labels * scores
    balanced = 0.5 * (losses[labels == 1].mean() + losses[labels == 0].mean())
    assert found.validation_loss == pytest.approx(balanced, rel=1e-4)


def test_training_ends_when_nothing_gets_better() -> None:
    noise = toy(1)
    noise = DraftedTokens(
        noise.features, np.random.default_rng(0).integers(0, 2, 1500), noise.temperature, noise.prompt
    )
    found = fit_mlp(toy(0, 3000), noise, SMALL, replace(SHORT, epochs=50), 0)
    assert found.epochs == found.best_epoch + SHORT.patience < 50


def test_a_last_batch_of_one_token_does_no_harm() -> None:
    one_more = replace(SMALL, batch=64, batch_norm=True)
    assert np.isfinite(fit_mlp(toy(0, 129), toy(1, 100), one_more, EarlyStopping(2, 2), 0).validation_loss)


def test_a_fit_is_a_function_of_its_seed() -> None:
    one, same, other = (fitted(replace(SMALL, hidden=(8,)), seed=seed).perceptron.layers for seed in (1, 1, 2))
    assert np.array_equal(one[0][0], same[0][0])
    assert not np.array_equal(one[0][0], other[0][0])
    before = torch.get_rng_state()
    fit_mlp(toy(0, 100), toy(1, 100), SMALL, EarlyStopping(1, 1), 0)
    assert torch.equal(torch.get_rng_state(), before), "nobody else's draws are moved"


def test_the_search_is_seeded_within_bounds_and_keeps_the_best() -> None:
    drawn = drawn_settings(0, 40)
    assert drawn[:5] == drawn_settings(0, 5)
    assert drawn[:5] != drawn_settings(1, 5)
    assert all(1e-5 <= one.learning_rate <= 1e-3 and 32 <= one.batch <= 256 for one in drawn)
    assert all(0.0 <= one.dropout <= 0.3 for one in drawn)
    assert len({one.hidden for one in drawn}) == 4
    tried: list[MlpFit] = []
    part = toy(0, 300)
    best = search_mlp(part, toy(1, 300), trials=3, patience=EarlyStopping(3, 3), seed=0, on_fitted=tried.append)
    assert [one.settings for one in tried] == drawn[:3]
    assert best.validation_loss == min(one.validation_loss for one in tried)
