"""Which predictors a pair has. The shipped ones are asked of tokens that nothing was fitted to."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.special import expit

from lab.training.pair_files import save_predictor
from lab.training.predictor.families import RecordedFeatures
from lab.training.predictor.quality import calibration_error, log_loss
from lab.training.ranking import area_under_curve
from outrider.contracts.errors import ModelUnavailableError, PairMismatchError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.perceptron import Perceptron
from outrider.models.embedded import embedded_drafter_path, ensure_embedded_target
from outrider.models.identity import sampled_hash
from outrider.models.predictors import load_predictors, shipped_predictors
from outrider.models.target_folder import model_hash
from tests.unit.drafting.test_perceptron import LAYERS
from tests.unit.models.test_predictor_file import INFO

HASHES = {"target_hash": INFO.target_hash, "drafter_hash": INFO.drafter_hash}
SHIPPED = (AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE, AcceptanceRule.RATIO)
HELD_OUT = Path(__file__).parent / "data" / "held_out_tokens.safetensors"  # from the test part of each rule's rounds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_predictor(tmp_path / "ratio.safetensors", Perceptron(LAYERS), INFO)
    greedy = replace(INFO, rule=AcceptanceRule.GREEDY, temperatures=(0.0,))
    save_predictor(tmp_path / "greedy.safetensors", Perceptron(LAYERS), greedy)
    return tmp_path


def test_a_file_or_a_folder_is_read_by_rule(folder: Path) -> None:
    assert set(load_predictors(str(folder), **HASHES)) == {AcceptanceRule.RATIO, AcceptanceRule.GREEDY}
    assert set(load_predictors(str(folder / "greedy.safetensors"), **HASHES)) == {AcceptanceRule.GREEDY}
    assert load_predictors(None, **HASHES) == {}
    assert load_predictors("auto", **HASHES) == {}, "the package has none for such a pair"


def test_one_of_another_pair_is_refused_with_both_hashes(folder: Path) -> None:
    for which, made_for in HASHES.items():
        with pytest.raises(PairMismatchError, match=rf"hash {made_for}\), found hash c{{64}}"):
            load_predictors(str(folder / "ratio.safetensors"), **{**HASHES, which: "c" * 64})


def test_what_is_no_predictor_is_refused(folder: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="needs a predictor written by"):
        load_predictors(str(folder / "none.safetensors"), **HASHES)
    (folder / "empty").mkdir()
    with pytest.raises(ModelUnavailableError, match=r"in .*empty, found no \*\.safetensors"):
        load_predictors(str(folder / "empty"), **HASHES)
    save_predictor(folder / "again.safetensors", Perceptron(LAYERS), INFO)
    with pytest.raises(ModelUnavailableError, match="one predictor for each rule, found two for ratio"):
        load_predictors(str(folder), **HASHES)


def test_the_embedded_pair_has_one_for_each_rule() -> None:
    hashes = {
        "target_hash": model_hash(ensure_embedded_target()),
        "drafter_hash": sampled_hash(embedded_drafter_path()),
    }
    assert set(load_predictors("auto", **hashes)) == set(SHIPPED)
    for which in hashes:
        assert shipped_predictors(**{**hashes, which: "c" * 64}) == {}


@pytest.mark.parametrize("rule", SHIPPED)
def test_a_shipped_predictor_is_truer_than_the_confidence(rule: AcceptanceRule) -> None:
    hashes = model_hash(ensure_embedded_target()), sampled_hash(embedded_drafter_path())
    held_out = load_file(HELD_OUT)
    features, accepted = held_out[f"{rule}.features"].astype(np.float64), held_out[f"{rule}.accepted"].astype(np.int64)
    perceptron, confidence = shipped_predictors(*hashes)[rule].perceptron, features[:, 0]
    told = expit(perceptron.scores(features))
    assert perceptron.probability(RecordedFeatures(features[0])) == pytest.approx(told[0], abs=1e-5)
    assert log_loss(told, accepted) < log_loss(confidence, accepted)
    assert np.square(told - accepted).mean() < np.square(confidence - accepted).mean(), "Brier"
    assert (calibration_error(told, accepted) or 0.0) < (calibration_error(confidence, accepted) or 1.0)
    ours, theirs = (area_under_curve(scores, accepted) for scores in (told, confidence))
    assert ours is not None
    assert theirs is not None
    assert ours > theirs - 0.005, "it orders tokens as well"
