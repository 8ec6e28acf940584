from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.drafter_weights import (
    DrafterInfo,
    DrafterWeights,
    dequantise_rows,
    quantise_rows,
    read_drafter,
    read_drafter_info,
    save_drafter,
    write_drafter_file,
)

INFO = DrafterInfo("some target", "ab", "cd", (0, 2), 4, {"greedy_acceptance": 0.5})


def some_weights() -> DrafterWeights:
    generator = torch.Generator().manual_seed(0)
    layers = {
        "0.mlp.up_proj.weight": torch.randn(6, 4, generator=generator),
        "1.self_attn.q_proj.bias": torch.randn(4, generator=generator),
    }
    return DrafterWeights(layers, torch.randn(4, generator=generator), torch.randn(4, 4, generator=generator))


@given(st.integers(0, 2**32 - 1), st.floats(-3, 3))
def test_rounding_error_is_at_most_half_a_step_per_row(seed: int, log_scale: float) -> None:
    weight = torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)) * 10**log_scale
    weight[2] = 0.0
    q, scales = quantise_rows(weight)
    # Half a step; the scale's own rounding to float16 can clip the largest value by 127 * 2**-11 of a step.
    assert ((dequantise_rows(q, scales) - weight).abs() <= scales.float() * 0.57).all()
    assert q.dtype == torch.int8
    assert scales.shape == (5, 1)


def test_saved_file_reads_back_and_describes_itself(tmp_path: Path) -> None:
    file, weights = tmp_path / "new" / "drafter.safetensors", some_weights()
    save_drafter(file, weights, INFO)
    info, loaded = read_drafter(file)
    assert info == INFO == read_drafter_info(file)
    assert loaded.layers.keys() == weights.layers.keys()
    for name, value in weights.layers.items():
        torch.testing.assert_close(loaded.layers[name], value, atol=0.02, rtol=0.001)
    torch.testing.assert_close(loaded.norm, weights.norm.half().float(), rtol=0, atol=0)
    torch.testing.assert_close(loaded.projection, weights.projection.half().float(), rtol=0, atol=0)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_quantising_twice_changes_nothing(tmp_path: Path) -> None:
    save_drafter(tmp_path / "a.safetensors", some_weights(), INFO)
    save_drafter(tmp_path / "b.safetensors", read_drafter(tmp_path / "a.safetensors")[1], INFO)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_what_is_not_a_drafter_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    with pytest.raises(ModelUnavailableError, match="needs a drafter file"):
        read_drafter(file)
    file.write_bytes(b"nonsense")
    with pytest.raises(ModelUnavailableError, match="needs a drafter file"):
        read_drafter(file)
    save_file({"norm": torch.ones(4)}, file)
    with pytest.raises(ModelUnavailableError, match=r"needs drafter format 2 .* found None"):
        read_drafter(file)


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    write_drafter_file(file, {"norm": torch.ones(4)}, INFO)
    with pytest.raises(ModelUnavailableError, match="needs tensor 'out_proj'"):
        read_drafter(file)


def test_the_tokens_it_proposes_read_back(tmp_path: Path) -> None:
    file = tmp_path / "drafter.safetensors"
    save_drafter(file, replace(some_weights(), head_ids=torch.tensor([0, 3, 49_000])), INFO)
    head_ids = read_drafter(file)[1].head_ids
    assert head_ids is not None
    assert head_ids.tolist() == [0, 3, 49_000]
    save_drafter(file, some_weights(), INFO)
    assert read_drafter(file)[1].head_ids is None
