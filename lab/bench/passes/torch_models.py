"""The torch engine's model as served, and variants without the order of operations that makes it exact.

The variants exist to be measured: nothing that serves can build one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from outrider.engines.forward_model import MaskedModel
from outrider.engines.torch.fused.model import FusedModel
from outrider.engines.torch.fused.products import as_tensor
from outrider.engines.torch.linears import pack_linears
from outrider.engines.torch.model import PagedModel
from outrider.engines.torch.served import target_model
from outrider.engines.torch.sizes import ANY, Sizes

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
