from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from outrider.contracts.errors import ModelUnavailableError
from outrider.models.drafter_model import (
    build_drafter,
    drafter_config,
    input_embedding,
    load_drafter,
    load_drafter_from_target_dir,
    output_head,
)
from outrider.models.drafter_weights import DrafterInfo, save_drafter
from outrider.models.target_folder import model_hash
from outrider.training.distillation.student import cut_from_target
from tests.unit.models.tiny_models import save_model, tiny_model

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
KINDS = [("llama", True), ("llama", False), ("qwen2", True), ("qwen3", False)]


def whole_drafter(target: PreTrainedModel, layers: tuple[int, ...]) -> PreTrainedModel:
    config = drafter_config(target.config, layers)
    return build_drafter(config, cut_from_target(target, layers), input_embedding(target), output_head(target))


def save_cut(file: Path, target: PreTrainedModel, layers: tuple[int, ...], *, hidden: int = 32) -> None:
    info = DrafterInfo("tiny", "", "", layers, hidden)
    save_drafter(file, cut_from_target(target, layers), info)


@pytest.mark.parametrize(("kind", "tied"), KINDS)
@torch.inference_mode()
def test_all_layers_and_an_identity_projection_are_the_target(kind: str, tied: bool) -> None:
    target = tiny_model(kind, tied=tied)
    drafter = whole_drafter(target, (0, 1, 2))
    torch.testing.assert_close(drafter(IDS).logits, target(IDS).logits)


@torch.inference_mode()
def test_the_projection_stands_before_the_head() -> None:
    target = tiny_model("llama")
    config, weights = drafter_config(target.config, (0, 1, 2)), cut_from_target(target, (0, 1, 2))
    weights.projection.copy_(torch.randn(32, 32, generator=torch.Generator().manual_seed(1)))
    drafter = build_drafter(config, weights, input_embedding(target), None)
    expected = target.base_model(IDS).last_hidden_state @ weights.projection @ input_embedding(target).T
    torch.testing.assert_close(drafter(IDS).logits, expected)


@torch.inference_mode()
def test_fewer_layers_run_as_an_ordinary_causal_lm() -> None:
    drafter = whole_drafter(tiny_model("qwen2"), (0, 2))
    whole = drafter(IDS).logits
    rows = torch.tensor([2, 5])
    positions = torch.arange(IDS.shape[1])[None]
    torch.testing.assert_close(drafter(IDS, position_ids=positions, logits_to_keep=rows).logits, whole[:, rows])
    cache = DynamicCache(config=drafter.config)
    drafter(IDS[:, :5], past_key_values=cache)
    torch.testing.assert_close(drafter(IDS[:, 5:], past_key_values=cache).logits, whole[:, 5:])
    assert len(cache.layers) == 2


@pytest.mark.parametrize("tied", [True, False])
def test_embedding_and_head_are_shared_with_a_loaded_target(tmp_path: Path, tied: bool) -> None:
    target = tiny_model("llama", tied=tied)
    save_cut(tmp_path / "d.safetensors", target, (0, 1))
    drafter = load_drafter(tmp_path / "d.safetensors", target)
    assert input_embedding(drafter).data_ptr() == input_embedding(target).data_ptr()
    pointers = {value.data_ptr() for value in drafter.parameters() if value.shape == (48, 32)}
    assert pointers == {input_embedding(target).data_ptr(), output_head(target).data_ptr()}


@pytest.mark.parametrize(("kind", "tied"), KINDS)
@torch.inference_mode()
def test_loading_beside_the_target_and_from_its_folder_is_the_same(tmp_path: Path, kind: str, tied: bool) -> None:
    target = tiny_model(kind, tied=tied)
    folder = save_model(tmp_path / "target", target)
    save_cut(tmp_path / "d.safetensors", target, (0, 1))
    beside = load_drafter(tmp_path / "d.safetensors", target)
    alone = load_drafter_from_target_dir(tmp_path / "d.safetensors", folder, dtype=torch.float32, device="cpu")
    torch.testing.assert_close(alone(IDS).logits, beside(IDS).logits, rtol=0, atol=0)
    assert not alone.training
    assert not any(value.requires_grad for value in alone.parameters())


def test_a_drafter_runs_in_the_dtype_asked_for(tmp_path: Path) -> None:
    target = tiny_model("llama")
    folder = save_model(tmp_path / "target", target)
    save_cut(tmp_path / "d.safetensors", target, (0,))
    drafter = load_drafter_from_target_dir(tmp_path / "d.safetensors", folder, dtype=torch.bfloat16, device="cpu")
    assert {value.dtype for value in drafter.parameters()} == {torch.bfloat16}
    assert drafter(IDS).logits.dtype == torch.bfloat16


def test_a_target_of_another_width_or_depth_is_refused(tmp_path: Path) -> None:
    target = tiny_model("llama")
    save_cut(tmp_path / "wide.safetensors", target, (0,), hidden=64)
    with pytest.raises(ModelUnavailableError, match=r"hidden size 64 \(tiny\), found 32"):
        load_drafter(tmp_path / "wide.safetensors", target)
    save_cut(tmp_path / "deep.safetensors", target, (0, 2))
    with pytest.raises(ModelUnavailableError, match=r"needs source layers within 0\.\.1 .* found \[0, 2\]"):
        load_drafter(tmp_path / "deep.safetensors", tiny_model("llama", layers=2))


def test_a_target_of_another_architecture_is_refused(tmp_path: Path) -> None:
    save_cut(tmp_path / "d.safetensors", tiny_model("llama"), (0,))
    with pytest.raises(ModelUnavailableError, match=r"found qwen3: .*q_norm"):
        load_drafter(tmp_path / "d.safetensors", tiny_model("qwen3"))


def test_a_finetuned_target_has_another_hash_a_renamed_folder_has_not(tmp_path: Path) -> None:
    target = tiny_model("llama")
    first = model_hash(save_model(tmp_path / "a", target))
    assert model_hash(save_model(tmp_path / "b", target)) == first
    with torch.no_grad():
        output_head(target).mul_(1.01)
    assert model_hash(save_model(tmp_path / "c", target)) != first


@pytest.mark.parametrize("head_ids", [[], [3, 3], [5, 4], [-1, 2], [0, 48]], ids=str)
def test_tokens_that_cannot_be_proposed_are_refused(head_ids: list[int]) -> None:
    target = tiny_model("llama")
    weights = replace(cut_from_target(target, (0,)), head_ids=torch.tensor(head_ids, dtype=torch.int64))
    config = drafter_config(target.config, (0,))
    with pytest.raises(ModelUnavailableError, match=r"needs head_ids of a drafter ascending within 0\.\.47"):
        build_drafter(config, weights, input_embedding(target), None)


@pytest.mark.parametrize(("kind", "tied"), KINDS)
@torch.inference_mode()
def test_a_drafter_of_some_tokens_says_of_them_what_one_of_all_says(tmp_path: Path, kind: str, tied: bool) -> None:
    target = tiny_model(kind, tied=tied)
    folder, file = save_model(tmp_path / "target", target), tmp_path / "drafter.safetensors"
    kept = torch.tensor([1, 4, 9, 40])
    weights = replace(cut_from_target(target, (0, 1)), head_ids=kept)
    save_drafter(file, weights, DrafterInfo("tiny", model_hash(folder), "", (0, 1), 32))
    some = load_drafter_from_target_dir(file, folder, dtype=torch.float32, device="cpu")(IDS).logits
    whole = load_drafter_from_target_dir(file, folder, dtype=torch.float32, device="cpu", whole_head=True)(IDS).logits
    torch.testing.assert_close(some[..., kept], whole[..., kept], rtol=1e-4, atol=1e-4)
    assert torch.isfinite(some).sum() == IDS.numel() * len(kept)
    torch.testing.assert_close(load_drafter(file, target)(IDS).logits, some)
