"""Products over weights in panels: the right ones, and the same bits in any company."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from outrider.engines.torch.fused import products
from outrider.engines.torch.fused.products import PanelProduct, can_multiply, multiply_linears

# Outputs of a layer or of several, inputs; panels have 64 outputs.
SHAPES = [((64,), 2), ((1,), 16), ((40, 24, 33), 48), ((128,), 1536), ((960,), 576)]
TYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def llama(dtype: torch.dtype, *, inputs: int = 16) -> PreTrainedModel:
    sizes: dict[str, Any] = {"vocab_size": 32, "hidden_size": inputs, "intermediate_size": 48, "num_hidden_layers": 1}
    model: Any = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=1, head_dim=16))
    found: PreTrainedModel = model.to(dtype)
    return found


def layers_of(widths: tuple[int, ...], inputs: int, dtype: torch.dtype) -> list[tuple[Tensor, Tensor | None]]:
    """Of which each second one has a bias."""
    weights = [torch.randn(width, inputs).to(dtype) for width in widths]
    return [(one, torch.randn(len(one)).to(dtype) if i % 2 else None) for i, one in enumerate(weights)]


def expected_of(rows: Tensor, layers: list[tuple[Tensor, Tensor | None]]) -> Tensor:
    parts = [rows.double() @ weight.double().T + (0 if bias is None else bias.double()) for weight, bias in layers]
    return torch.cat(parts, -1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("widths", "inputs"), SHAPES)
def test_a_product_is_what_its_layers_say(widths: tuple[int, ...], inputs: int, dtype: torch.dtype) -> None:
    layers = layers_of(widths, inputs, dtype)
    product = products.paneled(layers)
    assert product.widths == widths
    assert product.weight.ctypes.data % 64 == 0
    for shape in [(0, inputs), (1, inputs), (3, 5, inputs), (inputs,)]:
        rows = torch.randn(shape).to(dtype)
        found = product(rows)
        assert found.shape == (*shape[:-1], sum(widths))
        torch.testing.assert_close(found.double(), expected_of(rows, layers), atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_row_is_the_same_bits_in_any_company(dtype: torch.dtype) -> None:
    """Of sums that nearly cancel: another order of adding up would change nearly all of them."""
    weight, rows = torch.randn(100, 1536).to(dtype), torch.randn(70, 1536).to(dtype)
    weight[:, 768:] = weight[:, :768]
    rows[:, 768:] = rows[:, :768] * (2.0**-7 - 1.0)
    product = products.paneled([(weight, None)])
    alone = torch.cat([product(row[None]) for row in rows])
    assert not torch.equal(products.paneled([(weight.flip(1), None)])(rows.flip(1)), alone), "the order would show"
    for count in (*range(1, 20), 64, 70):
        for first in {0, 1, 70 - count} & set(range(71 - count)):
            assert torch.equal(product(rows[first : first + count]), alone[first : first + count])


@pytest.mark.parametrize("dtype", TYPES)
def test_a_model_is_multiplied_where_nothing_else_is_faster(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = {"avx512f", "avx512bf16"}
    monkeypatch.setattr(products, "has", has.__contains__)
    assert can_multiply(llama(dtype))
    assert can_multiply(llama(dtype, inputs=15)) == (dtype is torch.float32)  # bfloat16 is taken in pairs
    assert not can_multiply(llama(torch.float16))
    torch.set_num_threads(2)
    assert not can_multiply(llama(dtype))
    torch.set_num_threads(1)
    has.add("amx-bf16")
    assert can_multiply(llama(dtype)) == (dtype is torch.float32)
    has.clear()
    assert not can_multiply(llama(dtype))


def test_no_weight_is_left_behind() -> None:
    model: Any = llama(torch.float32)
    expected = model.lm_head.weight.detach().clone()
    multiply_linears(model)
    head = model.lm_head.product
    assert isinstance(head, PanelProduct)
    assert [name for name, weight in model.named_parameters() if weight.ndim > 1] == ["model.embed_tokens.weight"]
    torch.testing.assert_close(head(torch.eye(16)), expected.T)
