"""A tiny random model in a folder, as vLLM wants it, and one engine over it for each module of tests."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.engines.kinds import VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings

VOCAB = 97
HIDDEN = 96
BLOCK_TOKENS = 32
KV_BYTES_PER_TOKEN = 2 * 2 * 2 * 32 * 4  # keys and values, layers, heads, head size, float32

ON_VLLM = pytest.mark.xdist_group("vllm")
MakeSettings = Callable[..., VllmSettings]


def tiny_llama(seed: int = 0) -> LlamaForCausalLM:
    """Weights large enough that the argmax is never a near-tie; vLLM's CPU attention wants heads of 32 at least."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB + 7,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    model.eval()
    return model


@pytest.fixture(scope="session")
def tiny() -> LlamaForCausalLM:
    """The model as transformers runs it."""
    return tiny_llama()


@pytest.fixture(scope="session")
def tiny_folder(tiny: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, saved."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    tiny.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_settings(tiny_folder: Path) -> MakeSettings:
    """Settings for the saved model: 64 blocks, passes of 96 tokens and 6 segments."""

    def make(
        folder: Path = tiny_folder,
        max_context_tokens: int = 768,
        kv_budget_bytes: int = 64 * BLOCK_TOKENS * KV_BYTES_PER_TOKEN,
        **changes: Any,
    ) -> VllmSettings:
        limits = EngineLimits(kv_budget_bytes, BLOCK_TOKENS)
        spec = VerifierSpec("vllm", str(folder), "float32", "cpu", 1, limits, max_pass_tokens=96)
        return VllmSettings(replace(spec, **changes), folder, VOCAB, max_context_tokens, max_pass_segments=6)

    return make


@pytest.fixture(scope="module")
def forward(make_settings: MakeSettings) -> Iterator[VllmForward]:
    """A started engine."""
    model = VllmForward(make_settings())
    yield model
    model.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of vLLM in one of the processes that share the tests: each would import and start it anew."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(ON_VLLM)
