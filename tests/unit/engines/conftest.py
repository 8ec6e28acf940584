"""Tiny random models and the engines under test. A second engine joins by adding a factory to ``VERIFIERS``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from outrider.engines.base import VerifierEngine
from outrider.engines.forward import BlockCopy, Move, PassResult, Segment, TreeLayout
from outrider.engines.limits import EngineLimits
from outrider.engines.paged_model import PagedModel, kv_bytes_per_token
from outrider.engines.paged_verifier import PagedVerifier
from outrider.engines.torch_drafter import TorchDrafter
from outrider.engines.torch_verifier import TorchVerifier

VOCAB = 97
BLOCK_TOKENS = 4


@dataclass(frozen=True)
class TinyModel:
    """A loaded model as engines want it."""

    model: PreTrainedModel
    vocab_size: int = VOCAB
    max_context_tokens: int = 256


def tiny_llama(seed: int = 0, layers: int = 2) -> LlamaForCausalLM:
    """Random weights large enough that the argmax is never a near-tie; logits are wider than the vocabulary."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB + 7,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    model.eval()
    return model


MakeVerifier = Callable[..., VerifierEngine]


def torch_verifier(model: PreTrainedModel, *, blocks: int = 200, prefill_chunk_tokens: int = 16) -> TorchVerifier:
    """The torch engine with room for ``blocks`` KV blocks."""
    budget = kv_bytes_per_token(model) * BLOCK_TOKENS * blocks
    return TorchVerifier(TinyModel(model), EngineLimits(budget, BLOCK_TOKENS, prefill_chunk_tokens))


class BranchedModel(PagedModel):
    """The torch model as one that takes trees path by path, and copies whole blocks."""

    trees = TreeLayout.BRANCHES

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        """Copy blocks, then compute; no segment is a tree."""
        assert not any(segment.parents for segment in segments)
        size = self.block_tokens
        if copies:
            self.move([Move([one.source, one.target], range(size), range(size, 2 * size)) for one in copies])
        return super().forward(segments, want_hidden=want_hidden)


def branched_verifier(model: PreTrainedModel, *, blocks: int = 200, prefill_chunk_tokens: int = 16) -> PagedVerifier:
    """The paged engine over a model without tree masks."""
    return PagedVerifier(
        BranchedModel(model, blocks, BLOCK_TOKENS),
        vocab_size=VOCAB,
        max_context_tokens=TinyModel(model).max_context_tokens,
        prefill_chunk_tokens=prefill_chunk_tokens,
        kept_rows_bytes=EngineLimits(kv_bytes_per_token(model) * BLOCK_TOKENS * blocks).kept_rows_bytes,
    )


VERIFIERS: dict[str, MakeVerifier] = {"torch": torch_verifier, "branched": branched_verifier}


@pytest.fixture(params=sorted(VERIFIERS))
def make_verifier(request: pytest.FixtureRequest) -> MakeVerifier:
    """Each engine in turn."""
    return VERIFIERS[request.param]


def torch_drafter(model: PreTrainedModel, *, blocks: int = 200, prefill_chunk_tokens: int = 16) -> TorchDrafter:
    """The torch drafter with room for ``blocks`` KV blocks."""
    budget = kv_bytes_per_token(model) * BLOCK_TOKENS * blocks
    return TorchDrafter(TinyModel(model), EngineLimits(budget, BLOCK_TOKENS, prefill_chunk_tokens))
