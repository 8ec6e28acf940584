"""Linear layers in integers: near to the ones they replace, and each row by itself."""

from typing import Any

import pytest
import torch
from torch import nn

from outrider.contracts.errors import ParameterError
from outrider.engines.kinds import DrafterSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.int8 import has_int8, quantise_linears
from outrider.engines.torch.kind import drafter_dtype
from tests.unit.models.tiny_models import tiny_model

needs_int8 = pytest.mark.skipif(not has_int8(), reason="this processor does not add up bytes exactly")
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


class Layers(nn.Module):
    """Layers as a model has them: some of one input, one with a bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(inputs)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(inputs, outputs, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(inputs, outputs)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([layer(rows) for layer in (self.q_proj, self.k_proj, self.v_proj, self.o_proj)], -1)


def both(inputs: int, outputs: int) -> tuple[Layers, Layers]:
    plain, quantised = Layers(inputs, outputs), Layers(inputs, outputs)
    quantise_linears(quantised)  # type: ignore[arg-type]
    return plain, quantised


@needs_int8
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 48), (576, 192), (1536, 576), (37, 5), (1, 1)])
@torch.inference_mode()
def test_a_product_is_the_layers_up_to_the_rounding_of_weights_and_inputs(inputs: int, outputs: int) -> None:
    plain, quantised = both(inputs, outputs)
    assert not [name for name, _ in quantised.named_parameters()], "nothing is left of the weights as they were"
    rows = torch.randn(9, inputs, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 9)[:, None]
    error = (quantised(rows) - plain(rows)).norm(dim=-1) / plain(rows).norm(dim=-1).clamp_min(1e-9)
    assert (error < 0.03).all()


@needs_int8
@torch.inference_mode()
def test_a_row_is_the_same_bits_in_any_company() -> None:
    _, quantised = both(576, 192)
    rows = torch.randn(64, 576, generator=torch.Generator().manual_seed(3)) * 7
    rows[5] = 0.0
    whole = quantised(rows)
    for count in (1, 2, 3, 7, 16, 33):
        for first in (0, 5, 64 - count):
            assert torch.equal(quantised(rows[first : first + count]), whole[first : first + count])
    assert torch.equal(whole[5, :576], torch.zeros(576))


@needs_int8
@torch.inference_mode()
def test_a_whole_model_in_integers_says_nearly_the_same() -> None:
    plain, quantised = tiny_model("qwen2"), tiny_model("qwen2")
    quantise_linears(quantised)
    expected, found = plain(IDS).logits, quantised(IDS).logits
    assert torch.nn.functional.cosine_similarity(expected, found, dim=-1).min() > 0.99


def spec(dtype: str, device: str = "cpu") -> DrafterSpec:
    return DrafterSpec("torch", "embedded", "embedded", dtype, device, 1, EngineLimits(2**20))


def test_auto_is_what_the_device_computes_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drafter_dtype(spec("auto", "cuda")) == "bfloat16"
    assert drafter_dtype(spec("float16")) == "float16"
    monkeypatch.setattr("outrider.engines.torch.int8.has_int8", lambda: True)
    assert drafter_dtype(spec("auto")) == drafter_dtype(spec("int8")) == "int8"
    monkeypatch.setattr("outrider.engines.torch.int8.has_int8", lambda: False)
    assert drafter_dtype(spec("auto")) in ("bfloat16", "float32")


def test_integers_where_there_are_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.engines.torch.int8.has_int8", lambda: False)
    for device in ("cpu", "cuda"):
        with pytest.raises(ParameterError, match=r"dtype needs float32, .* found 'int8 on"):
            drafter_dtype(spec("int8", device))


def test_a_kernel_that_overflows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def saturating(rows: torch.Tensor, weight: Any) -> torch.Tensor:  # noqa: ARG001
        return torch.full((len(rows), len(rows)), 32_767.0)

    monkeypatch.setattr("outrider.engines.torch.int8._multiplied", saturating)
    has_int8.cache_clear()
    assert not has_int8()
    has_int8.cache_clear()
