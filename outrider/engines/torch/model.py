"""One forward pass of a Hugging Face causal LM over a ragged batch, with the KV in a shared block pool.

The tokens of all sequences are packed into one row, so every linear layer runs once over exactly the new tokens.
Attention is the one place where sequences differ: it is registered with transformers as an attention function that
writes the new keys and values into their slots and attends, sequence by sequence, to that sequence's gathered blocks.
That costs no more than a ``DynamicCache``, which copies the whole cache once per pass to append to it.

A token tree is packed like a chain, a slot for each node. It differs in two ways: a node's position (rotary embedding)
is its depth's, and it sees of the tree only its ancestors and itself. So a path's KV, once moved to consecutive slots
(``PagedModel.move``), is what the path alone would have left there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from outrider.contracts.errors import UnsupportedModelError
from outrider.contracts.tree import ancestors
from outrider.engines.forward_model import Move, PassResult, Segment

ATTENTION_NAME = "outrider_paged"
# What other attention functions of transformers take into account and this one does not.
_NOT_IMPLEMENTED = ("softcap", "s_aux", "position_bias", "head_mask")


@dataclass(frozen=True, slots=True)
class _Span:
    """Where one segment lies in the packed row and what it may see."""

    first: int
    last: int
    block_index: Tensor
    kv_len: int
    mask: Tensor | None  # [heads per KV head * tokens, kv_len] additive; None when every key is visible


@dataclass(frozen=True, slots=True)
class _PagedBatch:
    keys: list[Tensor]  # per layer [slots, kv_heads, head_dim]
    values: list[Tensor]
    block_tokens: int
    slots: Tensor  # [N] where each packed token's KV goes
    spans: list[_Span]


def _gathered(cache: Tensor, span: _Span, block_tokens: int) -> Tensor:
    """``[1, kv_heads, kv_len, head_dim]``: one sequence's keys or values in order."""
    paged = cache.view(-1, block_tokens, *cache.shape[1:])
    return paged[span.block_index].flatten(0, 1)[: span.kv_len].transpose(0, 1)[None]


def _paged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 (transformers' signature; our spans carry the masks)
    scaling: float | None = None,
    dropout: float = 0.0,  # noqa: ARG001 (inference only)
    *,
    paged: _PagedBatch,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend sequence by sequence: query ``[1, heads, N, head_dim]``, key and value ``[1, kv_heads, N, head_dim]``."""
    asked = [name for name in _NOT_IMPLEMENTED if others.get(name) is not None]
    if asked:
        raise UnsupportedModelError(
            f"the torch engine implements plain attention, found a {type(module).__name__} that asks for "
            f"{', '.join(asked)}; serve this model with another engine"
        )
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    keys, values = paged.keys[layer], paged.values[layer]
    keys[paged.slots] = key[0].transpose(0, 1)
    values[paged.slots] = value[0].transpose(0, 1)
    heads, kv_heads, head_dim = query.shape[1], key.shape[1], query.shape[3]
    out = query.new_empty(1, query.shape[2], heads, value.shape[3])
    for span in paged.spans:
        tokens = span.last - span.first
        # The query heads that share a KV head are stacked, so grouped-query attention needs no repeated keys.
        stacked = query[:, :, span.first : span.last].reshape(1, kv_heads, heads // kv_heads * tokens, head_dim)
        attended = scaled_dot_product_attention(
            stacked,
            _gathered(keys, span, paged.block_tokens),
            _gathered(values, span, paged.block_tokens),
            attn_mask=span.mask,
            scale=scaling,
        )
        out[0, span.first : span.last] = attended.view(heads, tokens, -1).transpose(0, 1)
    return out, None


AttentionInterface.register(ATTENTION_NAME, _paged_attention)


class PagedModel:
    """A ``MaskedModel``: a causal LM and the KV tensors of a block pool."""

    def __init__(self, model: PreTrainedModel, total_blocks: int, block_tokens: int) -> None:
        """Take over ``model`` (its attention is replaced) and allocate the pool on its device in its dtype."""
        config = model.config.get_text_config()
        self._model = model
        self.total_blocks = total_blocks
        self.block_tokens = block_tokens
        self._group = config.num_attention_heads // _kv_heads(config)
        self._hidden: Tensor | None = None
        model.set_attn_implementation(ATTENTION_NAME)
        shape = (total_blocks * block_tokens, _kv_heads(config), _head_dim(config))
        layers = range(config.num_hidden_layers)
        self._keys = [torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in layers]
        self._values = [torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in layers]
        self.forward([Segment([0], 0, [0], 1)])  # a model this cannot serve is refused now, not by its first request

    @property
    def no_logits(self) -> Tensor:
        """``[0, vocab]``."""
        width = int(self._model.config.get_text_config().vocab_size)
        return torch.empty(0, width, dtype=self._model.dtype, device=self._model.device)

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment], *, want_hidden: bool = False) -> PassResult:
        """Compute the segments' KV in place and the logits they want.

        ``want_hidden`` adds the final-norm hidden state of each logits row.
        """
        device = self._model.device
        packed = [token for segment in segments for token in segment.token_ids]
        positions = [position for segment in segments for position in segment.positions()]
        spans, slots, rows, first = [], [], [], 0
        for segment in segments:
            last, stop = first + len(segment.token_ids), segment.stop
            blocks = self._tensor(segment.blocks[: -(-stop // self.block_tokens)])
            slots.append(self._pool_slots(blocks, torch.arange(segment.start, stop, device=device)))
            spans.append(_Span(first, last, blocks, stop, self._mask(segment)))
            rows.append(torch.arange(last - segment.logit_rows, last, device=device))
            first = last
        batch = _PagedBatch(self._keys, self._values, self.block_tokens, torch.cat(slots), spans)
        hook = self._model.base_model.register_forward_hook(self._keep_hidden) if want_hidden else None
        wanted = torch.cat(rows)
        try:
            output = self._model(
                input_ids=torch.tensor([packed], device=device),
                position_ids=torch.tensor([positions], device=device),
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
        """Copy keys and values between slots; every source is read before any target is written."""
        sources = torch.cat([self._pool_slots(self._tensor(m.blocks), self._tensor(m.sources)) for m in moves])
        targets = torch.cat([self._pool_slots(self._tensor(m.blocks), self._tensor(m.targets)) for m in moves])
        for cache in (*self._keys, *self._values):
            cache[targets] = cache[sources]

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._model.device)

    def _pool_slots(self, blocks: Tensor, at: Tensor) -> Tensor:
        """Where in the pool a sequence's slots ``at`` lie."""
        return blocks[at // self.block_tokens] * self.block_tokens + at % self.block_tokens

    def _mask(self, segment: Segment) -> Tensor | None:
        """``[heads per KV head * tokens, kv_len]`` additive; None if every new token sees all before it."""
        tokens, stop, device = len(segment.token_ids), segment.stop, self._model.device
        if tokens == 1 and not segment.parents:
            return None
        at = torch.arange(segment.start, stop, device=device)
        hidden = torch.arange(stop, device=device)[None, :] > at[:, None]
        if segment.parents:
            seen = torch.from_numpy(ancestors(segment.parents)).to(device)
            new = min(tokens, len(segment.parents))
            hidden[tokens - new :, segment.tree_start :] = ~seen[len(segment.parents) - new :]
        mask = torch.zeros(hidden.shape, dtype=self._model.dtype, device=device)
        return mask.masked_fill_(hidden, float("-inf")).repeat(self._group, 1)

    def _keep_hidden(self, module: torch.nn.Module, inputs: object, output: Any) -> None:  # noqa: ARG002 (hook signature)
        self._hidden = output.last_hidden_state


def kv_bytes_per_token(model: PreTrainedModel) -> int:
    """Bytes of keys and values one position takes over all layers."""
    return configured_kv_bytes_per_token(model.config.get_text_config(), model.dtype)


def configured_kv_bytes_per_token(config: PretrainedConfig, dtype: torch.dtype) -> int:
    """The same, of a model that is not loaded."""
    return int(2 * config.num_hidden_layers * _kv_heads(config) * _head_dim(config) * dtype.itemsize)


def _kv_heads(config: Any) -> int:
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
