"""Which model a verifier gets, and which it is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from outrider.contracts.errors import UnsupportedModelError
from outrider.contracts.requests import SamplingParams
from outrider.engines.forward_model import Segment
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.verifier import vllm_verifier
from tests.unit.engines.reference import Client, generate, target_alone
from tests.unit.engines.vllm.conftest import MakeSettings, tiny_llama


def test_the_verifier_says_what_the_target_alone_would(make_settings: MakeSettings) -> None:
    engine = vllm_verifier(make_settings(), prefill_chunk_tokens=16)
    params, prompt = SamplingParams(temperature=0.8, seed=5), [5, 17, 42, 8, 61, 30, 2]
    truth = target_alone(tiny_llama(), prompt, params, 20)
    client = Client("a", prompt, params)
    generate(engine, [client], lambda c: [*truth[len(c.output) :][:2], 1], 12)
    assert client.output == truth[: len(client.output)]


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
