"""What a device decides: what ``auto`` stands for, and which predictors its rule is given."""

from pathlib import Path

import pytest
import torch

from lab.training.pair_files import save_predictor
from outrider.contracts.errors import PairMismatchError
from outrider.drafting.perceptron import Perceptron
from outrider.drafting.stopping import StopSetting
from outrider.engines.kinds import DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.registry import VERIFIERS
from outrider.engines.torch.kind import drafter_dtype, stopping_of
from outrider.models.embedded import embedded_drafter_path
from outrider.models.identity import sampled_hash
from tests.unit.drafting.test_perceptron import LAYERS
from tests.unit.models.test_predictor_file import INFO

TORCH = VERIFIERS["torch"]


@pytest.mark.parametrize(("capability", "dtype"), [((7, 5), "float32"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")])
def test_on_a_gpu_auto_is_bfloat16_where_the_gpu_computes_in_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: str
) -> None:
    """Of each GPU by itself: the second of this machine is an old one."""
    gpus = {"cuda": capability, "cuda:1": (7, 0)}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", gpus.__getitem__)
    assert TORCH.settled_dtype("auto", "cuda", "target") == dtype
    assert TORCH.settled_dtype("auto", "cuda:1", "target") == "float32"
    spec = DrafterSpec("torch", "drafter", "target", "auto", "cuda", 1, EngineLimits(2**20, 16, 16))
    assert drafter_dtype(spec) == dtype


def test_a_named_type_is_what_it_is() -> None:
    assert TORCH.settled_dtype("float16", "cuda", "target") == "float16"
    assert TORCH.settled_dtype("float32", "cpu", "target") == "float32"


def stopping(target: str, predictor: str | None, *, kind: str = "stop_before", drafter_hash: str = "") -> StopSetting:
    limits = EngineLimits(2**20, 16, 16)
    spec = DrafterSpec("torch", "drafter", target, "auto", "cpu", 1, limits, StopSetting(kind), predictor=predictor)
    return stopping_of(spec, drafter_hash)


def test_a_rule_that_asks_is_given_the_predictors_of_its_pair(tmp_path: Path) -> None:
    drafter = sampled_hash(embedded_drafter_path())
    assert len(stopping("embedded", "auto", drafter_hash=drafter).predictors) == 3
    assert stopping("embedded", "auto", drafter_hash="d" * 64).predictors == {}, "of another drafter there is none"
    assert stopping("embedded", None, drafter_hash=drafter).predictors == {}
    save_predictor(tmp_path / "own.safetensors", Perceptron(LAYERS), INFO)
    with pytest.raises(PairMismatchError, match="a predictor needs the target it was trained for"):
        stopping("embedded", str(tmp_path / "own.safetensors"))
    assert stopping("nowhere", str(tmp_path / "none"), kind="never") == StopSetting("never"), "nothing is read for it"
