"""Which model a verifier gets, and which it is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from outrider.contracts.errors import UnsupportedModelError
from outrider.engines.segments import Segment
from outrider.engines.vllm.model import VllmForward
from tests.unit.engines.vllm.conftest import MakeSettings


def test_a_sliding_window_serves_within_its_window_only(
    tmp_path: Path, tiny: LlamaForCausalLM, tiny_folder: Path, make_settings: MakeSettings
) -> None:
    """Transformers' Llama knows no sliding layers, vLLM's does: within the window they must agree."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "sliding"))
    config = json.loads((folder / "config.json").read_text())
    config |= {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 64}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="64 positions at most"):
        VllmForward(make_settings(folder=folder, max_context_tokens=96))
    model = VllmForward(make_settings(folder=folder, max_context_tokens=64))
    tokens = list(range(64))
    model.forward([Segment(tokens[:50], 0, [3, 1], 0)])
    found = model.forward([Segment(tokens[50:], 50, [3, 1], 14)]).logits
    with torch.inference_mode():
        expected = tiny(torch.tensor([tokens])).logits[0, 50:]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    model.close()
