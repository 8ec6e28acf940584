"""Choose the implementation of a model: ``FusedModel`` wherever it can compute it, else ``PagedModel``."""

import os

import torch

from outrider.engines.forward_model import MaskedModel
from outrider.engines.torch.fused.model import FusedModel, can_fuse
from outrider.engines.torch.fused.products import can_multiply, multiply_linears
from outrider.engines.torch.linears import can_pack, pack_linears
from outrider.engines.torch.model import DraftModel, PagedModel
from outrider.models.model_classes import PreTrainedModel


def target_model(
    model: PreTrainedModel, total_blocks: int, block_tokens: int, parts: int = 1
) -> FusedModel | PagedModel:
    """Take over a target's model, and replace its linear layers. Rows are batch-invariant if ``keeps_bits``.

    ``parts``: as ``FusedModel``'s, limited to this machine's cores.
    """
    if not _fits(model):
        return PagedModel(model, total_blocks, block_tokens)
    if can_multiply(model):
        multiply_linears(model)
    elif can_pack(model):
        pack_linears(model)
    return FusedModel(model, total_blocks, block_tokens, min(parts, _cores()))


def draft_model(model: PreTrainedModel, total_blocks: int, block_tokens: int) -> MaskedModel:
    """Take over a draft model; drafts need not be batch-invariant."""
    make = target_model if _fits(model) else DraftModel
    return make(model, total_blocks, block_tokens)


def keeps_bits(model: PreTrainedModel) -> bool:
    """Whether ``target_model`` makes it batch-invariant: a row has the same bits in any batch."""
    return can_pack(model) or (can_fuse(model) and can_multiply(model))


def _cores() -> int:
    allowed = getattr(os, "sched_getaffinity", None)  # on Linux
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _fits(model: PreTrainedModel) -> bool:
    narrow = model.device.type == "cpu" and model.dtype is not torch.float32
    return can_fuse(model) and (keeps_bits(model) or not narrow)
