"""A head learns what can be learnt, and its file holds what was learnt."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.training.head.examples import Examples
from lab.training.head.fitting import FitConfig, HeadModule, fit, standard_of
from lab.training.head.mismatches import HiddenPair
from lab.training.head.train import rejection_probs
from lab.training.pair_files import save_head
from lab.training.ranking import area_under_curve
from outrider.models.head_file import HeadInfo, read_head
from outrider.verification.decision_head import DecisionHead, link_inputs

DRAFTER, TARGET = 6, 8
CONFIG = FitConfig(hidden=16, learning_rate=1e-2, epochs=40, dropout=0.1, weight_decay=0.01)


def toy(seed: int, count: int = 400, share: float = 0.5) -> Examples:
    """Critical iff the two states' first numbers add up to more than a value that depends on the link's first."""
    rng = np.random.default_rng(seed)
    hidden = HiddenPair(*(rng.normal(size=(count, width)).astype(np.float32) for width in (DRAFTER, TARGET)))
    scale = np.array([1000.0, *[1.0] * (TARGET - 1)], np.float32)  # as single numbers of hidden states are
    links = rng.normal(size=(20, 5))
    mismatch, link = np.arange(count), rng.integers(0, 20, count)
    score = hidden.drafter[:, 0] + hidden.target[:, 0] + links[link, 0]
    labels = (score > np.quantile(score, 1.0 - share)).astype(np.int64)
    return Examples(HiddenPair(hidden.drafter, hidden.target * scale), links, mismatch, link, labels)


def probs_of(head: DecisionHead, part: Examples) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    drafter, target = (each[part.mismatch].astype(np.float64) for each in (part.hidden.drafter, part.hidden.target))
    return head.rejection_probs(drafter, target, part.links[part.link])


def test_what_is_separable_is_separated_on_data_that_was_not_seen() -> None:
    found = fit(toy(0, 1500), toy(1), CONFIG)
    part = toy(2)
    auc = area_under_curve(probs_of(DecisionHead(found.weights, 0.5), part), part.labels.tolist())
    assert auc is not None
    assert auc > 0.97


def test_classes_are_balanced_however_rare_one_is() -> None:
    found = fit(toy(0, 3000, share=0.05), toy(1, 1500, share=0.05), CONFIG)
    part = toy(2, 2000, share=0.05)
    probs = probs_of(DecisionHead(found.weights, 0.5), part)
    assert (probs[part.labels == 1] > 0.5).mean() > 0.8
    assert (probs[part.labels == 0] < 0.5).mean() > 0.8


def test_the_best_epoch_is_kept_and_training_ends_when_nothing_gets_better() -> None:
    noise = replace(toy(1), labels=np.random.default_rng(0).integers(0, 2, 400))
    found = fit(toy(0), noise, replace(CONFIG, patience=3))
    assert found.epochs == found.best_epoch + 3
    short = fit(toy(0), noise, replace(CONFIG, epochs=found.best_epoch))
    assert short.validation_loss == found.validation_loss
    assert np.array_equal(short.weights.inner, found.weights.inner)


def test_training_is_a_function_of_its_seed() -> None:
    one, same, other = (fit(toy(0), toy(1), replace(CONFIG, epochs=3, seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.weights.inner, same.weights.inner)
    assert one.validation_loss == same.validation_loss
    assert not np.array_equal(one.weights.inner, other.weights.inner)
    before = torch.get_rng_state()
    fit(toy(0), toy(1), replace(CONFIG, epochs=1))
    assert torch.equal(torch.get_rng_state(), before), "nobody else's draws are moved"


def test_the_exported_head_is_the_torch_model_up_to_half_precision(tmp_path: Path) -> None:
    found, part = fit(toy(0), toy(1), replace(CONFIG, epochs=5)), toy(2)
    weights = found.weights
    module = HeadModule(DRAFTER + TARGET + 5, CONFIG.hidden, CONFIG.dropout).eval()
    values = (weights.inner, weights.inner_bias, weights.outer[None], np.array([weights.outer_bias]))
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value))
        hidden = [each[part.mismatch].astype(np.float64) for each in (part.hidden.drafter, part.hidden.target)]
        kinds = [own(each) for own, each in zip((weights.drafter, weights.target), hidden, strict=True)]
        x = np.concatenate([*kinds, link_inputs(weights.csi, part.links[part.link])], 1)
        expected = torch.sigmoid(module(torch.from_numpy(x.astype(np.float32)))).numpy()
    assert probs_of(DecisionHead(weights, 0.5), part) == pytest.approx(expected, abs=1e-5)
    file = tmp_path / "head.safetensors"
    save_head(file, weights, HeadInfo("t", "1", "d", "2", 0.5, 1.0, 1.0, "fp16"))
    head = read_head(file).decisions
    assert probs_of(head, part) == pytest.approx(expected, abs=5e-3)


def test_deviations_are_floored() -> None:
    numbers = np.random.default_rng(0).normal(size=(50, 4)) * [1.0, 2.0, 0.0, 1e-9]
    deviation = standard_of(numbers).deviation
    assert deviation[2] == deviation[3] == pytest.approx(1e-3 * numbers.std(0).mean())
    assert deviation[:2] == pytest.approx(numbers.std(0)[:2])
    assert (standard_of(np.ones((3, 2))).deviation > 0).all()


def test_a_link_that_is_worse_in_training_lets_more_pass() -> None:
    part = toy(0, 1500)
    found = fit(part, toy(1), CONFIG)
    low, high = (
        rejection_probs(found.weights, part.hidden, np.array([value, 0.0, 0.0, 0.0, 0.0])) for value in (-1.0, 1.0)
    )
    assert low.mean() < high.mean()
