"""Forward pass of a Hugging Face causal LM over a ragged batch, with the KV in a shared block pool.

The tokens of all sequences are packed into one row, so every linear layer runs once over exactly the new tokens.
Attention alone treats sequences separately (``attention``): it writes the new keys and values into their slots and
attends to gathered blocks. Gathering costs no more than a ``DynamicCache``, which copies the whole cache once per pass
to append to it. In bfloat16 on CPUs weights are packed (``linears``), and results are batch-invariant: a row's logits
have the same bits however its sequence is cut into passes and whatever else is in the batch.

A token tree is packed like a chain, with a slot for each node. It differs in two ways: a node's position (rotary
embedding) follows from its depth, and within the tree it sees only its ancestors and itself. So a path's KV, moved to
consecutive slots (``PagedModel.move``), equals what the path alone would have left there.
"""

import logging
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PretrainedConfig

from outrider.contracts.errors import UnsupportedModelError
from outrider.engines.forward_model import PassResult
from outrider.engines.kv.host_cache import HostCopy
from outrider.engines.segments import Move, Segment
from outrider.engines.torch import buffers
from outrider.engines.torch.attention import (
    ATTENTION_NAME,
    Attends,
    PagedPass,
    agreeing_rows,
    prepare_span_attention,
    prepare_tiled_attention,
)
from outrider.engines.torch.linears import can_pack, pack_linears, unpackable_weights
from outrider.engines.torch.sizes import ANY, Sizes
from outrider.models.model_classes import PreTrainedModel
from outrider.sampling.device_tensors import Upload, at_once, index_tensor

log = logging.getLogger(__name__)

_STAGED_BLOCKS = 64  # blocks per copy between device and host memory, which bounds the staging memory


class PagedModel:
    """A ``MaskedModel``: a causal LM and the KV tensors of a block pool."""

    def __init__(self, model: PreTrainedModel, total_blocks: int, block_tokens: int) -> None:
        """Take over ``model``, replace its attention and perhaps its linear layers, and allocate its buffers.

        The pool has the model's device and dtype. On an accelerator passes are filled up to buckets (``buffers``).
        """
        config = model.config.get_text_config()
        self._model = model
        self.total_blocks = total_blocks
        self.block_tokens = block_tokens
        self._group = config.num_attention_heads // _kv_heads(config)
        self._hidden: Tensor | None = None
        self._attended = set[int]()
        self._host = torch.empty(0)
        model.set_attn_implementation(ATTENTION_NAME)
        self._rows, filled = self._settled(model), at_once(model.device)
        shape = (_kv_heads(config), (total_blocks + filled) * block_tokens, _head_dim(config))
        self._inputs = torch.zeros(buffers.INPUTS, dtype=torch.int64, device=model.device) if filled else None
        self._keys, self._values = (
            [torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in range(config.num_hidden_layers)]
            for _ in range(2)
        )
        self._try()

    @property
    def no_logits(self) -> Tensor:
        width = int(self._model.config.get_text_config().vocab_size)
        return torch.empty(0, width, dtype=self._model.dtype, device=self._model.device)

    @property
    def pools(self) -> list[Tensor]:
        return [*self._keys, *self._values]

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        """Compute the segments' KV in place, and return the logits they want.

        ``want_hidden`` adds the final-norm hidden state of each logits row.
        """
        upload = Upload()  # one copy for all index tensors: each copy would synchronise with the device
        ends = [*accumulate(len(segment.token_ids) for segment in segments)]
        filling = [0] * (buffers.bucket_of(ends[-1]) - ends[-1] if self._inputs is not None else 0)
        packed = upload.add([[*(token for segment in segments for token in segment.token_ids), *filling]])
        positions = upload.add([[*(position for segment in segments for position in segment.positions()), *filling]])
        spare = np.full(len(filling), self.total_blocks * self.block_tokens, np.int64)
        used = [self._pool_slots(one.blocks, range(one.start, one.stop)) for one in segments]
        slots = upload.add(np.concatenate([*used, spare]))
        rows = upload.add(
            [row for one, end in zip(segments, ends, strict=True) for row in range(end - one.logit_rows, end)]
        )
        attend = self._prepare_attention(segments, upload)
        upload.send(self._model.device, self._inputs)
        batch = PagedPass(self._keys, self._values, slots(), attend(), self._attended)
        hook = self._model.base_model.register_forward_hook(self._keep_hidden) if want_hidden else None
        wanted = rows()
        try:
            output = self._model(
                input_ids=packed(),
                position_ids=positions(),
                use_cache=False,
                logits_to_keep=wanted,
                paged=batch,
            )
        finally:
            if hook is not None:
                hook.remove()
        hidden, self._hidden = self._hidden, None
        return PassResult(output.logits[0], None if hidden is None else hidden[0, wanted])

    @torch.inference_mode()
    def move(self, moves: Sequence[Move]) -> None:
        upload = Upload()
        sources = upload.add(np.concatenate([self._pool_slots(move.blocks, move.sources) for move in moves]))
        targets = upload.add(np.concatenate([self._pool_slots(move.blocks, move.targets) for move in moves]))
        upload.send(self._model.device, self._inputs)
        for cache in self.pools:
            cache[:, targets()] = cache[:, sources()]

    @torch.inference_mode()
    def clear(self, blocks: Sequence[int]) -> None:
        """Zero these blocks, if attention reads masked slots (0 times NaN is NaN)."""
        if self._rows is None:
            return
        at = index_tensor(blocks, self._model.device)
        for cache in self.pools:
            self._blocks_of(cache)[:, at] = 0

    def give_host_memory(self, slots: int) -> None:
        """Allocate slots for KV blocks; for a GPU in pinned memory, so that copies are fast."""
        caches, (heads, _, width) = self.pools, self._keys[0].shape
        shape = (slots, len(caches), heads, self.block_tokens, width)
        self._host = torch.zeros(shape, dtype=caches[0].dtype, pin_memory=caches[0].is_cuda)

    @torch.inference_mode()
    def swap(self, copies: Sequence[HostCopy]) -> None:
        """Copy blocks out and back, in this order. A slot holds one block of all layers, contiguously."""
        for out, run in groupby(copies, key=lambda copy: copy.out):
            moved = list(run)
            for first in range(0, len(moved), _STAGED_BLOCKS):
                some = moved[first : first + _STAGED_BLOCKS]
                blocks = index_tensor([copy.block for copy in some], self._model.device)
                if out:
                    self._copy_out(blocks, [copy.slot for copy in some])
                else:
                    self._copy_back(blocks, [copy.slot for copy in some])

    def _copy_out(self, blocks: Tensor, slots: Sequence[int]) -> None:
        staged = torch.stack([self._blocks_of(cache)[:, blocks] for cache in self.pools]).permute(2, 0, 1, 3, 4)
        for slot, block in zip(slots, staged.contiguous(), strict=True):
            self._host[slot].copy_(block, non_blocking=True)

    def _copy_back(self, blocks: Tensor, slots: Sequence[int]) -> None:
        staged = torch.empty((len(slots), *self._host.shape[1:]), dtype=self._host.dtype, device=blocks.device)
        for slot, block in zip(slots, staged, strict=True):
            block.copy_(self._host[slot], non_blocking=True)
        for cache, rows in zip(self.pools, staged.permute(1, 2, 0, 3, 4), strict=True):
            self._blocks_of(cache)[:, blocks] = rows

    def _blocks_of(self, cache: Tensor) -> Tensor:
        """``[kv_heads, blocks, block_tokens, d]``."""
        return cache.view(cache.shape[0], -1, self.block_tokens, cache.shape[2])

    def _try(self) -> None:
        """Run one token, so that an ``UnsupportedModelError`` comes now instead of with the first request."""
        try:
            self.forward([Segment([0], 0, [0], 1)])
        except TypeError as error:  # its layers do not pass on what attention needs
            raise UnsupportedModelError(_refusal(self._model, str(error))) from error
        if len(self._attended) < len(self._keys):
            found = f"{len(self._attended)} of {len(self._keys)} layers that attend by transformers' interface"
            raise UnsupportedModelError(_refusal(self._model, found))

    def _settled(self, model: PreTrainedModel) -> Sizes | None:
        """Make the model batch-invariant, if possible.

        Returns the numbers of rows that attention may compute at once; None: the model is not batch-invariant.
        """
        if not can_pack(model):
            if model.device.type == "cpu" and model.dtype is not torch.float32:
                log.warning("answers in %s may depend on the batch on this CPU: use float32", model.dtype)
            return None
        if left := unpackable_weights(model):
            log.warning("answers may depend on the batch: these weights cannot be packed: %s", ", ".join(left))
        pack_linears(model)
        config, like = model.config.get_text_config(), torch.empty(0, dtype=model.dtype)
        heads = config.num_attention_heads, _kv_heads(config)
        return agreeing_rows(*heads, _head_dim(config), self.block_tokens, like)

    def _pool_slots(self, blocks: Sequence[int], at: Sequence[int]) -> NDArray[np.int64]:
        """Return the pool slots of a sequence's slots ``at``."""
        block, offset = np.divmod(np.asarray(at, dtype=np.int64), self.block_tokens)
        slots: NDArray[np.int64] = np.asarray(blocks, dtype=np.int64)[block] * self.block_tokens + offset
        return slots

    def _prepare_attention(self, segments: Sequence[Segment], upload: Upload) -> Callable[[], Attends]:
        if self._rows is None:
            return prepare_span_attention(segments, self.block_tokens, self._group, self._keys[0], upload)
        return prepare_tiled_attention(segments, self.block_tokens, self._group, self._keys[0], self._rows, upload)

    def _keep_hidden(self, module: torch.nn.Module, inputs: object, output: Any) -> None:  # noqa: ARG002 (hook signature)
        self._hidden = output.last_hidden_state


class DraftModel(PagedModel):
    """Model for drafts, which need not be exact: tiles of all sequences are attended together in any dtype."""

    def _prepare_attention(self, segments: Sequence[Segment], upload: Upload) -> Callable[[], Attends]:
        if len(segments) == 1 and self._rows is None:
            return super()._prepare_attention(segments, upload)
        rows = self._rows or ANY
        return prepare_tiled_attention(segments, self.block_tokens, self._group, self._keys[0], rows, upload)


def _refusal(model: PreTrainedModel, found: str) -> str:
    kind = type(model).__name__
    return (
        f"the torch engine needs a model whose attention can be replaced, found a {kind}: {found}; serve it with vLLM"
    )


def kv_bytes_per_token(model: PreTrainedModel) -> int:
    """Return the bytes of keys and values of one position, over all layers."""
    return configured_kv_bytes_per_token(model.config.get_text_config(), model.dtype)


def configured_kv_bytes_per_token(config: PretrainedConfig, dtype: torch.dtype) -> int:
    """Return the same for a model that is not loaded."""
    return int(2 * config.num_hidden_layers * _kv_heads(config) * _head_dim(config) * dtype.itemsize)


def _kv_heads(config: Any) -> int:
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
