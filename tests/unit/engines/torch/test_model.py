"""Which models the paged forward pass serves, and which it refuses rather than serve wrongly."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
)

from outrider.contracts.errors import UnsupportedModelError
from outrider.engines.segments import Move, Segment
from outrider.engines.torch.model import PagedModel

TOKENS = [3, 7, 1, 9, 4, 4, 8, 2, 6, 5]


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=32,
            hidden_size=24,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            initializer_range=0.3,
        )
    )


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=24, n_layer=2, n_head=4, initializer_range=0.3))


@pytest.mark.parametrize("make", [qwen3, gpt2])
def test_ragged_chunks_give_the_models_own_logits(make: Callable[[], PreTrainedModel]) -> None:
    """Grouped-query attention with norms on queries and keys; and one head per key, learned positions, no rotary."""
    torch.manual_seed(0)
    model = make().eval()
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([TOKENS])).logits[0]
        alone = model(input_ids=torch.tensor([TOKENS[:3]])).logits[0]
    paged = PagedModel(model, total_blocks=8, block_tokens=4)
    paged.forward([Segment(TOKENS[:5], 0, [6, 1], 0)])
    result = paged.forward([Segment(TOKENS[:3], 0, [3], 3), Segment(TOKENS[5:], 5, [6, 1, 2], 5)], want_hidden=True)
    torch.testing.assert_close(result.logits, torch.cat([alone, expected[5:]]), atol=1e-4, rtol=1e-4)
    assert result.hidden is not None
    assert result.hidden.shape == (8, 24)


def test_attention_it_does_not_implement_is_refused_when_the_model_is_loaded() -> None:
    config = Gemma2Config(
        vocab_size=32,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        attn_logit_softcapping=5.0,
    )
    with pytest.raises(UnsupportedModelError, match="softcap"):
        PagedModel(Gemma2ForCausalLM(config).eval(), total_blocks=8, block_tokens=4)


SMALL: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.mark.parametrize(
    "make",
    [
        lambda: FalconForCausalLM(FalconConfig(**SMALL)),
        lambda: BloomForCausalLM(BloomConfig(vocab_size=32, hidden_size=24, n_layer=2, n_head=4)),
        lambda: StableLmForCausalLM(StableLmConfig(**SMALL, intermediate_size=32)),
    ],
    ids=["falcon", "bloom", "stablelm"],
)
def test_a_model_that_attends_by_itself_is_refused_when_it_is_loaded(make: Callable[[], PreTrainedModel]) -> None:
    """It would see nothing of the pages, and all of its neighbours."""
    with pytest.raises(UnsupportedModelError, match=r"attention can be replaced, found a \w+ForCausalLM"):
        PagedModel(make().eval(), total_blocks=8, block_tokens=4)


NODES = [11, 12, 13, 14, 15, 16]
PARENTS = [-1, -1, 0, 0, 1, 4]
PATHS = [[0], [1], [0, 2], [0, 3], [1, 4], [1, 4, 5]]


def path_rows(model: PreTrainedModel) -> torch.Tensor:
    """The row behind each node, from a plain pass over its own path."""
    with torch.inference_mode():
        passes = [model(input_ids=torch.tensor([[*TOKENS, *(NODES[node] for node in path)]])).logits for path in PATHS]
    return torch.stack([logits[0, -1] for logits in passes])


@pytest.mark.parametrize("make", [qwen3, gpt2])
@pytest.mark.parametrize("layers", [[6], [2, 3, 1], [2, 4]])
def test_a_trees_rows_are_those_of_its_paths(make: Callable[[], PreTrainedModel], layers: list[int]) -> None:
    """The whole tree in one pass behind part of the prefix, or layer by layer behind nodes that are resident."""
    torch.manual_seed(0)
    model = make().eval()
    expected = path_rows(model)
    paged = PagedModel(model, total_blocks=8, block_tokens=4)
    paged.forward([Segment(TOKENS[:7], 0, [6, 1], 0)])
    start, tokens, rows, done = 7, TOKENS[7:], [], 0
    for count in layers:
        tokens = [*tokens, *NODES[done : done + count]]
        done += count
        result = paged.forward([Segment(tokens, start, [6, 1, 2, 5], count, PARENTS[:done])])
        rows.append(result.logits)
        start, tokens = start + len(tokens), []
    torch.testing.assert_close(torch.cat(rows), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_moved_to_its_positions_is_what_the_path_alone_leaves(path: list[int]) -> None:
    torch.manual_seed(0)
    model = qwen3().eval()
    tokens = [*TOKENS, *(NODES[node] for node in path), 20, 21]
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([tokens])).logits[0, -2:]
    paged, blocks = PagedModel(model, total_blocks=8, block_tokens=4), [6, 1, 2, 5]
    beside = Segment([3, 9], 0, [7], 2)
    paged.forward([Segment([*TOKENS, *NODES], 0, blocks, 6, PARENTS), beside])
    base = len(TOKENS)
    paged.move([Move(blocks, [base + node for node in path], [base + depth for depth in range(len(path))])])
    found = paged.forward([Segment([20, 21], base + len(path), blocks, 2)]).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
