from pathlib import Path

import pytest

from lab.training.predictor.pair_names import PairNames, pair_names
from outrider.contracts.errors import ModelUnavailableError
from outrider.models.loading import load_drafter, load_target_facts
from tests.unit.lab.training.head.tiny_pairs import load, save_pair


def test_they_are_what_loading_says_of_two_folders(tmp_path: Path) -> None:
    target, drafter = save_pair(tmp_path, noise=0.05)
    models = load((target, drafter))
    ours, theirs = models.drafter, models.target
    assert pair_names(target, drafter) == PairNames(theirs.name, theirs.model_hash, ours.name, ours.model_hash)


def test_and_of_a_distilled_drafter() -> None:
    target, drafter = load_target_facts("embedded"), load_drafter("embedded", "embedded", dtype="float32", device="cpu")
    expected = PairNames(target.name, target.model_hash, drafter.name, drafter.model_hash)
    assert pair_names("embedded", "embedded") == expected


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    target, drafter = save_pair(tmp_path, noise=0.05)
    with pytest.raises(ModelUnavailableError, match=r"none\.safetensors, found no file"):
        pair_names(target, str(tmp_path / "none.safetensors"))
    with pytest.raises(ModelUnavailableError, match="nowhere"):
        pair_names(str(tmp_path / "nowhere"), drafter)
