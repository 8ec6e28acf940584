from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lab.training.pair_files import save_predictor
from outrider.contracts.errors import ModelUnavailableError, PairMismatchError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.features import DraftFeatures
from outrider.drafting.perceptron import Perceptron
from outrider.models.pair_file import check_pair
from outrider.models.predictor_file import PredictorInfo, read_predictor
from tests.unit.drafting.test_perceptron import LAYERS

RATIO = AcceptanceRule.RATIO
INFO = PredictorInfo("target", "a" * 64, "drafter", "b" * 64, RATIO, (0.7, 1.0), 0.6, {"auc": 0.9})


def test_a_predictor_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "predictor.safetensors"
    save_predictor(file, Perceptron(LAYERS), INFO)
    read = read_predictor(file)
    assert read.info == INFO
    features = DraftFeatures(np.array([0.6, 0.3, 0.1]))
    assert read.perceptron.probability(features) == Perceptron(LAYERS).probability(features)
    save_predictor(tmp_path / "again.safetensors", read.perceptron, read.info)
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_what_is_no_predictor_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "predictor.safetensors"
    with pytest.raises(ModelUnavailableError, match="needs a predictor written by `outrider train predictor`"):
        read_predictor(file)
    save_file({"x": np.zeros(2)}, file)
    with pytest.raises(ModelUnavailableError, match=r"needs predictor format 1 in .*found None"):
        read_predictor(file)
    save_file({"x": np.zeros(2)}, file, metadata={"outrider_predictor": '{"format": 1}'})
    with pytest.raises(ModelUnavailableError, match=r"needs a predictor by confidence, .*found one by nothing"):
        read_predictor(file)
    fields = '"format": 1, "features": ["confidence", "entropy_nats", "margin", "logit_std"]'
    for rest in ("", ', "rule": "ratio"', ', "rule": "new", "temperatures": []'):
        save_file({"x": np.zeros(2)}, file, metadata={"outrider_predictor": f"{{{fields}{rest}}}"})
        with pytest.raises(ModelUnavailableError, match="needs a whole predictor"):
            read_predictor(file)
    whole = tmp_path / "whole.safetensors"
    save_predictor(whole, Perceptron(LAYERS), INFO)
    tensors = load_file(whole)
    assert len(tensors) == 2 * len(LAYERS)


def test_features_in_another_order_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "predictor.safetensors"
    with monkeypatch.context() as patched:
        patched.setattr("lab.training.pair_files.FEATURE_NAMES", ("margin", "confidence"))
        save_predictor(file, Perceptron(LAYERS), INFO)
    with pytest.raises(ModelUnavailableError, match="found one by margin, confidence"):
        read_predictor(file)


def test_another_pair_is_refused() -> None:
    check_pair(INFO, target_hash="a" * 64, drafter_hash="b" * 64)
    check_pair(INFO)
    with pytest.raises(
        PairMismatchError, match=r"the target it was trained for \(target, hash a{64}\).*found hash c{64}"
    ):
        check_pair(INFO, target_hash="c" * 64)
    with pytest.raises(
        PairMismatchError, match=r"the drafter it was trained for \(drafter, hash b{64}\).*found hash c{64}"
    ):
        check_pair(INFO, drafter_hash="c" * 64)
