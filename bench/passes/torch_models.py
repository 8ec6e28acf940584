"""The torch engine's model as it is served, and made to compute without the order that makes it exact.

The others exist to be measured: nothing that serves can build one.
"""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from outrider.engines.torch.linears import can_pack, pack_linears
from outrider.engines.torch.model import PagedModel
from outrider.engines.torch.sizes import ANY, Sizes


class FilledModel(PagedModel):
    """As it is served, but that its KV is random from the start: what a pass takes does not depend on it."""

    def __init__(self, model: PreTrainedModel, total_blocks: int, block_tokens: int) -> None:
        """See ``PagedModel``; every page of the pool is written, so that reading it reads memory."""
        super().__init__(model, total_blocks, block_tokens)
        for cache in (*self._keys, *self._values):
            cache.normal_()


class AnyRowsModel(FilledModel):
    """Packed weights and tiles, in whatever numbers of rows there are: nothing is filled up."""

    def _settled(self, model: PreTrainedModel) -> Sizes | None:
        if can_pack(model):
            pack_linears(model, ANY)
            return ANY
        return None


class SpansModel(AnyRowsModel):
    """The same, with attention sequence by sequence."""

    def _settled(self, model: PreTrainedModel) -> Sizes | None:
        super()._settled(model)
        return None


class PlainModel(FilledModel):
    """torch's own linear layers, and attention sequence by sequence."""

    def _settled(self, model: PreTrainedModel) -> Sizes | None:  # noqa: ARG002 (left as it is)
        return None


EXACT = "torch"
INEXACT: Mapping[str, type[FilledModel]] = {
    "any rows": AnyRowsModel,
    "any rows, spans": SpansModel,
    "plain": PlainModel,
}


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of weights that a pass reads: all, but of an embedding that is no output head only a few rows."""
    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    total = sum(weight.nbytes for weight in model.parameters())
    return total if head.weight is embedding.weight else total - int(embedding.weight.nbytes)
