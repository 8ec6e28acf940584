from pathlib import Path
from typing import Any

import pytest
import torch

from lab.bench.harness.fewer_layers import without_layers
from outrider.contracts.errors import ParameterError
from outrider.models.loading import load_drafter, load_target
from tests.unit.models.tiny_models import save_model, tiny_model

IDS = torch.tensor([[3, 1, 4, 1, 5]])


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path / "home"))
    made: Any = tiny_model("qwen3")
    return str(save_model(tmp_path / "target", made.to(torch.bfloat16)))


def test_the_layers_that_are_left_follow_one_another(target: str) -> None:
    folder = without_layers(target, [1])
    found = load_drafter(str(folder), target, dtype="float32", device="cpu").model
    expected: Any = load_target(target, dtype="float32", device="cpu").model
    expected.model.layers = torch.nn.ModuleList([expected.model.layers[0], expected.model.layers[2]])
    assert found.config.num_hidden_layers == 2
    assert torch.equal(found(IDS, use_cache=False).logits, expected(IDS, use_cache=False).logits)
    assert without_layers(target, [1, 1]) == folder, "made once"


@pytest.mark.parametrize("skipped", [[], [3], [-1], [0, 1, 2]])
def test_there_must_be_such_layers_and_others(target: str, skipped: list[int]) -> None:
    with pytest.raises(ParameterError, match=r"needs some, not all, of 0\.\.2"):
        without_layers(target, skipped)
