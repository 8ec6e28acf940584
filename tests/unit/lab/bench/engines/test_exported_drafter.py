from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab.bench.engines.servers import export_drafter
from outrider.models.drafter_model import load_drafter_from_target_dir
from outrider.models.drafter_weights import DrafterInfo, save_drafter
from outrider.training.distillation.student import cut_from_target
from tests.unit.models.tiny_models import EOS, save_model, tiny_model

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("llama", False), ("qwen2", True), ("qwen3", False)])
@torch.inference_mode()
def test_an_exported_drafter_says_what_the_drafter_says(tmp_path: Path, kind: str, tied: bool) -> None:
    target = tiny_model(kind, tied=tied)
    folder = save_model(tmp_path / "target", target)
    weights = cut_from_target(target, (0, 2))
    weights.projection.copy_(torch.randn(32, 32, generator=torch.Generator().manual_seed(1)))
    file = tmp_path / "drafter.safetensors"
    save_drafter(file, weights, DrafterInfo("tiny", "", "", (0, 2), 32))
    drafter = load_drafter_from_target_dir(file, folder, dtype=torch.float32, device="cpu")
    out = export_drafter(file, folder, tmp_path / "exported")
    exported = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, local_files_only=True)
    torch.testing.assert_close(exported(IDS).logits, drafter(IDS).logits, rtol=1e-4, atol=1e-4)
    assert exported.config.num_hidden_layers == 2
    assert AutoTokenizer.from_pretrained(out, local_files_only=True).eos_token_id == EOS
