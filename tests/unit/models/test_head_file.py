from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from lab.training.pair_files import save_head
from outrider.contracts.errors import ModelUnavailableError, PairMismatchError
from outrider.models.head_file import HeadInfo, read_head
from outrider.models.pair_file import check_pair
from tests.unit.verification.test_decision_head import question, weights

INFO = HeadInfo("target", "a" * 64, "drafter", "b" * 64, 0.4, 0.2, 0.3, "fp16", {"accuracy": 0.9})


def test_a_head_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "head.safetensors"
    save_head(file, weights(), INFO)
    read = read_head(file)
    info, head = read.info, read.decisions
    assert info == INFO
    assert head.threshold == INFO.threshold
    assert head.drafter_width == len(weights().drafter.mean)
    save_head(tmp_path / "again.safetensors", head.weights, info)
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes(), "what was read is what was written"
    assert head.accepts([question(1, 3)]) == read_head(file).decisions.accepts([question(1, 3)])


def test_what_is_no_head_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "head.safetensors"
    with pytest.raises(ModelUnavailableError, match="needs a decision head written by"):
        read_head(file)
    save_file({"x": np.zeros(2)}, file)
    with pytest.raises(ModelUnavailableError, match=r"needs decision head format 1 in .*, found None"):
        read_head(file)
    save_file({"x": np.zeros(2)}, file, metadata={"outrider_head": '{"format": 1}'})
    with pytest.raises(ModelUnavailableError, match="needs a whole decision head"):
        read_head(file)


def test_a_head_of_another_pair_is_refused_with_both_hashes() -> None:
    check_pair(INFO, target_hash="a" * 64, drafter_hash="b" * 64)
    check_pair(INFO)
    for change in ({"target_hash": "c" * 64}, {"drafter_hash": "c" * 64}):
        with pytest.raises(PairMismatchError, match=r"(target, hash a{64}|drafter, hash b{64})\), found hash c{64}"):
            check_pair(INFO, **change)
