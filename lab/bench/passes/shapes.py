"""Passes to measure, the bytes they read, and the models that make them: as served, and inexact ones to compare.

The inexact ones lack the order of operations that makes passes exact; nothing that serves can build one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from outrider.engines.forward_model import MaskedModel
from outrider.engines.segments import Segment
from outrider.engines.torch.fused.model import FusedModel
from outrider.engines.torch.fused.products import as_tensor
from outrider.engines.torch.linears import pack_linears
from outrider.engines.torch.model import PagedModel
from outrider.engines.torch.served import target_model
from outrider.engines.torch.sizes import ANY, Sizes


@dataclass(frozen=True, slots=True)
class PassShape:
    """``rows`` new tokens of each of several generations, all of which need logits."""

    rows: int
    generations: int

    @property
    def total_rows(self) -> int:
        return self.rows * self.generations

    def __str__(self) -> str:
        """``4x1``: four rows of one generation."""
        return f"{self.rows}x{self.generations}"


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """Bytes read in a pass: ``weights`` once, ``kv_token`` for each resident position of each sequence."""

    weights: int
    kv_token: int

    def of_pass(self, shape: PassShape, behind: int) -> int:
        """Bytes of a pass, without the KV that the new tokens write."""
        return self.weights + self.of_kv(behind) * shape.generations

    def of_kv(self, tokens: int) -> int:
        return self.kv_token * tokens


@dataclass(frozen=True, slots=True)
class Pool:
    """KV blocks for ``generations`` sequences of at most ``tokens`` positions, new ones included."""

    block_tokens: int
    tokens: int
    generations: int

    @property
    def blocks(self) -> int:
        return self.generations * self._each

    def of(self, generation: int) -> range:
        return range(generation * self._each, (generation + 1) * self._each)

    def segments(self, shape: PassShape, behind: int) -> list[Segment]:
        """A pass of new tokens behind ``behind`` resident ones of each sequence."""
        needed = behind + shape.rows
        if needed > self.tokens or shape.generations > self.generations:
            raise ValueError(f"needs room for {shape} behind {behind} tokens, found {self}")
        new = [1 + row for row in range(shape.rows)]
        used = -(-needed // self.block_tokens)
        return [Segment(new, behind, self.of(one)[:used], shape.rows) for one in range(shape.generations)]

    @property
    def _each(self) -> int:
        return -(-self.tokens // self.block_tokens)


Make = Callable[[PreTrainedModel, int, int], MaskedModel]


def served(model: PreTrainedModel, total_blocks: int, block_tokens: int) -> MaskedModel:
    """As served, except that its KV starts random: the time of a pass does not depend on it."""
    return _filled(target_model(model, total_blocks, block_tokens))


def any_rows(model: PreTrainedModel, total_blocks: int, block_tokens: int) -> MaskedModel:
    """The same with packed weights in any number of rows: no padding."""
    pack_linears(model, ANY)
    return _filled(FusedModel(model, total_blocks, block_tokens))


def _filled(model: MaskedModel) -> MaskedModel:
    """Write every page of the pool, so that reading it reads memory."""
    if isinstance(model, FusedModel):
        for pool in model.pools:
            numbers = pool.view(np.uint16) if pool.dtype == np.uint32 else pool  # keys: pairs of bfloat16
            as_tensor(numbers).normal_()
    elif isinstance(model, PagedModel):
        for cache in model.pools:
            cache.normal_()
    return model


class PlainModel(PagedModel):
    """torch's own linear layers, and attention sequence by sequence; its KV likewise random."""

    def __init__(self, model: PreTrainedModel, total_blocks: int, block_tokens: int) -> None:
        super().__init__(model, total_blocks, block_tokens)
        _filled(self)

    def _settled(self, model: PreTrainedModel) -> Sizes | None:  # noqa: ARG002 (left as it is)
        return None


EXACT = "torch"
INEXACT: Mapping[str, Make] = {
    "any rows": any_rows,
    "plain": PlainModel,
}


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of weights that a pass reads: all, but only a few rows of an embedding that is not the output head."""
    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    total = sum(weight.nbytes for weight in model.parameters())
    return total if head.weight is embedding.weight else total - int(embedding.weight.nbytes)
