"""What ``auto`` stands for, which the device decides."""

import pytest
import torch

from outrider.engines.kinds import DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.registry import VERIFIERS
from outrider.engines.torch.kind import drafter_dtype

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
