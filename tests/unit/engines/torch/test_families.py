"""The families of docs/reference/models.md, tiny and with random weights: the torch engine's output is their own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from outrider.contracts.requests import SamplingParams
from outrider.engines.torch.fused.model import FusedModel
from outrider.engines.torch.model import PagedModel
from outrider.engines.torch.served import target_model
from tests.unit.engines.conftest import BLOCK_TOKENS, CONTEXT_TOKENS, VOCAB, torch_verifier
from tests.unit.engines.reference import Client, generate, target_alone

LENGTH = 20
PROMPT = [3, 7, 1, 9, 4, 4, 8, 2, 6, 5, 33, 12, 40, 11, 2, 9, 7, 1, 60, 23, 5]
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB + 7,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": CONTEXT_TOKENS,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA3: dict[str, Any] = {  # three layers that slide to one that does not, each kind with rotations of its own
    **SHAPE,
    "query_pre_attn_scalar": 16,
    "sliding_window": CONTEXT_TOKENS,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}
EYES = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def gemma3_that_sees() -> PreTrainedModel:
    """As from 4B on: what loads is the model with its vision part, which is asked nothing."""
    config = Gemma3Config(text_config=Gemma3TextConfig(**GEMMA3).to_dict(), vision_config=EYES, mm_tokens_per_image=4)
    return Gemma3ForConditionalGeneration(config)


FAMILIES: dict[str, tuple[Callable[[], PreTrainedModel], type[FusedModel | PagedModel]]] = {
    "llama 3": (lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE)), FusedModel),
    "qwen 3": (lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE)), FusedModel),
    "qwen 3 moe": (
        lambda: Qwen3MoeForCausalLM(
            Qwen3MoeConfig(**SHAPE, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2)
        ),
        PagedModel,
    ),
    "gemma 3": (lambda: Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA3)), PagedModel),
    "gemma 3 with vision": (gemma3_that_sees, PagedModel),
    "smollm 2": (lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True)), FusedModel),
    "smollm 3": (lambda: SmolLM3ForCausalLM(SmolLM3Config(**SHAPE, no_rope_layers=[1, 1, 1, 0])), PagedModel),
}


def made(family: str) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = FAMILIES[family][0]()
    model.eval()
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_output_is_plain_transformers_own(family: str) -> None:
    """Behind drafts that are right, wrong at their end, wrong at once and empty, in chunks of the prompt."""
    params = SamplingParams(temperature=0.0, frequency_penalty=2.0)  # or random weights say one token again and again
    truth = target_alone(made(family), PROMPT, params, LENGTH)
    assert len(set(truth)) > 2, "or anything would pass"

    def draft(client: Client) -> list[int]:
        right, round_number = truth[len(client.output) :][:3], len(client.outcomes) % 4
        wrong = [(right[-1] + 1) % VOCAB] if right else []
        return {0: right, 1: right[:-1] + wrong, 2: wrong, 3: []}[round_number]

    client = Client(family, PROMPT, params)
    generate(torch_verifier(made(family), prefill_chunk_tokens=8), [client], draft, LENGTH)
    assert client.output[:LENGTH] == truth
    assert any(outcome.accepted_path for outcome in client.outcomes)


@pytest.mark.parametrize("family", FAMILIES)
def test_which_forward_pass_serves_it(family: str) -> None:
    """As docs/reference/models.md says: the fused one on processors, or transformers' own modules."""
    assert type(target_model(made(family), 8, BLOCK_TOKENS)) is FAMILIES[family][1]
