"""The fused model is the model, for those it takes; in float32, in bytes and in one thread or several."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from outrider.engines.segments import Move, Segment
from outrider.engines.torch.fused import model as fused_model
from outrider.engines.torch.fused.compiling import exponential
from outrider.engines.torch.fused.model import FusedModel, can_fuse
from outrider.engines.torch.int8 import has_int8, quantise_linears
from outrider.engines.torch.model import DraftModel, PagedModel
from outrider.engines.torch.served import draft_model, target_model

SHAPE: dict[str, Any] = {"vocab_size": 128, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2}
HEADS: dict[str, Any] = {"num_attention_heads": 6, "num_key_value_heads": 2, "initializer_range": 0.3}
TOKENS = random.Random(0).choices(range(128), k=60)
NODES, PARENTS, PATHS = [11, 12, 13, 14, 15, 16], [-1, -1, 0, 0, 1, 4], [[0], [1], [0, 2], [0, 3], [1, 4], [1, 4, 5]]
BLOCKS = [3, 1, 7, 4, 6]


def llama(**changed: Any) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, **HEADS, "head_dim": 16, **changed}))


def stretched() -> PreTrainedModel:
    """Trained for shorter texts."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling |= {"original_max_position_embeddings": 16, "rope_theta": 10000.0}
    return llama(rope_parameters=scaling)


def mistral() -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**SHAPE, **HEADS, head_dim=24, sliding_window=None))


def qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE, **HEADS))


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, **HEADS, head_dim=32))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_model, "_ROWS_A_PART", 8)


@pytest.fixture
def three_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


def with_random_norms(model: PreTrainedModel) -> PreTrainedModel:
    """As made they are ones, whatever they are applied to."""
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.data.uniform_(0.5, 1.5)
    model.eval()
    return model


def said(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """``[tokens, vocab]``, by transformers."""
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=torch.tensor([tokens])).logits[0]
    return logits


@pytest.mark.parametrize("make", [llama, stretched, mistral, qwen2, qwen3])
@pytest.mark.parametrize(("block_tokens", "parts"), [(16, 1), (20, 1), (16, 3)])
@pytest.mark.usefixtures("three_threads", "short_parts")
def test_chunks_and_trees_say_what_transformers_say(
    make: Callable[[], PreTrainedModel], block_tokens: int, parts: int
) -> None:
    model = with_random_norms(make())
    expected, alone = said(model, TOKENS), said(model, TOKENS[:5])
    branches = [said(model, [*TOKENS, *(NODES[node] for node in path)])[-1] for path in PATHS]
    fused = FusedModel(model, 8, block_tokens, parts)
    fused.forward([Segment(TOKENS[:20], 0, BLOCKS, 0)])
    beside = Segment(TOKENS[:5], 0, [2], 5)
    result = fused.forward([beside, Segment(TOKENS[20:], 20, BLOCKS, 40)], want_hidden=True)
    near(result.logits, torch.cat([alone, expected[20:]]))
    assert result.hidden is not None
    with torch.inference_mode():
        near(model.get_output_embeddings()(result.hidden), result.logits)
    near(fused.forward([Segment(NODES, 60, BLOCKS, 6, PARENTS)]).logits, torch.stack(branches))
    fused.move([Move(BLOCKS, [61, 64, 65], [60, 61, 62])])
    path = [*TOKENS, *(NODES[node] for node in PATHS[5])]
    near(fused.forward([Segment([9], 63, BLOCKS, 1)]).logits[0], said(model, [*path, 9])[-1])


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.usefixtures("short_parts")
def test_a_part_that_fails_fails_the_pass_and_the_next_one_is_made(failing: int) -> None:
    """The other parts do not wait for it for ever."""
    model = with_random_norms(llama())
    fused, passes = FusedModel(model, 8, 16, 3), [Segment(TOKENS, 0, BLOCKS, 60)]
    expected = fused.forward(passes).logits
    with pytest.raises(IndexError):
        fused.forward([Segment([*TOKENS[: 20 * failing], 1000, *TOKENS[20 * failing + 1 :]], 0, BLOCKS, 60)])
    near(fused.forward(passes).logits, expected)
    assert fused.forward([Segment(TOKENS, 0, BLOCKS, 0)]).logits.shape == (0, expected.shape[1])


@pytest.mark.skipif(not has_int8(), reason="this processor does not compute in bytes")
def test_quantised_layers_are_used_as_they_are() -> None:
    model = with_random_norms(llama())
    expected = said(model, TOKENS)
    quantise_linears(model)
    served = draft_model(model, 8, 16)
    assert isinstance(served, FusedModel)
    found = served.forward([Segment(TOKENS, 0, BLOCKS, 60)]).logits
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.99
    near(found, said(model, TOKENS))


def test_models_it_does_not_know_are_served_without_it() -> None:
    assert isinstance(target_model(qwen3(), 8, 16), FusedModel)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_embd=48, n_layer=2, n_head=4))
    assert type(target_model(gpt2, 8, 16)) is PagedModel
    assert type(draft_model(gpt2, 8, 16)) is DraftModel
    sliding = MistralForCausalLM(MistralConfig(**SHAPE, **HEADS, sliding_window=16))
    longer = llama(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})
    for unknown in (sliding, longer, llama(hidden_act="gelu"), llama().half()):
        assert not can_fuse(unknown)


@pytest.mark.parametrize("value", [-200.0, -87.0, -20.5, -1.0, -1e-6, 0.0, 0.3, 7.7, 60.0])
def test_exponentials_are_those_of_numpy(value: float) -> None:
    expected = np.exp(np.float64(max(value, -87.0)))
    assert exponential(np.float32(value)) == pytest.approx(expected, rel=2e-6)
