"""Attention over paged keys and values, registered with transformers, in two implementations.

``SpanAttention`` attends sequence by sequence, over exactly the keys a sequence has. ``TiledAttention`` is batch
invariant: a row has the same bits however its sequence is cut into passes and whatever else is in the batch. It
computes rows in numbers that agree bit for bit (``sizes``), over a number of keys that follows from the row's position
alone; tiles of one shape from all sequences are one call. A tree node attends to the keys of its path, gathered in the
order of a chain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from outrider.contracts.errors import UnsupportedModelError
from outrider.contracts.tree import ancestors
from outrider.engines.segments import Segment
from outrider.engines.torch.sizes import LARGEST, Sizes, agreeing
from outrider.models.model_classes import AttentionInterface
from outrider.sampling.device_tensors import Upload

ATTENTION_NAME = "outrider_paged"
# Arguments of transformers' attention functions that are not implemented here.
_NOT_IMPLEMENTED = ("softcap", "s_aux", "position_bias", "head_mask")
_KEYS = 128  # a row is computed over about the next multiple above its position, the rest masked
# Of each trial: seed, multiples of ``keys_step`` (beyond lengths at which kernels split keys), and number of tiles.
_TRIED = ((0, 1, 1), (0, 4, 1), (0, 16, 1), (1, 1, 1), (1, 5, 3))
_LEFT = 2.0**-7  # share of a trial's sums that does not cancel
_TRIED_SCORE = 256.0  # factor of the scores before they cancel, so that what is left is of the usual size


class Attends(Protocol):
    """Attention of one pass: query ``[heads, N, d]``, one layer's keys and values ``[kv_heads, slots, d]``."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """``[N, heads, d]``."""


class PagedPass(NamedTuple):
    """Arguments of a pass for every layer. ``layers`` collects the layers that attended by this interface."""

    keys: list[Tensor]  # per layer ``[kv_heads, slots, d]``
    values: list[Tensor]
    slots: Tensor  # ``[N]``, the pool slot of each new token
    attend: Attends
    layers: set[int]


def _paged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 (transformers' signature; a pass has masks of its own)
    scaling: float | None = None,
    *,
    paged: PagedPass,
    **others: Any,
) -> tuple[Tensor, None]:
    """Write keys and values, then attend: query ``[1, heads, N, d]``, key and value ``[1, kv_heads, N, d]``.

    Of the others, dropout is of training only.
    """
    asked = [name for name in _NOT_IMPLEMENTED if others.get(name) is not None]
    if asked:
        raise UnsupportedModelError(
            f"the torch engine implements plain attention, found a {type(module).__name__} that asks for "
            f"{', '.join(asked)}; serve this model with another engine"
        )
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    keys, values = paged.keys[layer], paged.values[layer]
    keys[:, paged.slots] = key[0]
    values[:, paged.slots] = value[0]
    paged.layers.add(layer)
    return paged.attend(query[0], keys, values, scaling)[None], None


AttentionInterface.register(ATTENTION_NAME, _paged_attention)


class _SegmentSpan(NamedTuple):
    """Rows of one segment in the packed row, and what they attend to."""

    first: int
    last: int
    blocks: Tensor
    kv_len: int
    mask: Tensor | None  # ``[heads per KV head * tokens, kv_len]`` additive; None when every key is visible


def prepare_span_attention(
    segments: Sequence[Segment], block_tokens: int, group: int, like: Tensor, upload: Upload
) -> Callable[[], "SpanAttention"]:
    """Return a maker of a pass's attention, to call once the upload is sent; ``group`` query heads per KV head."""
    blocks = [upload.add(segment.blocks[: -(-segment.stop // block_tokens)]) for segment in segments]
    masks = [_prepare_mask(segment, group, like, upload) for segment in segments]
    ends = list(accumulate(len(segment.token_ids) for segment in segments))

    def attention() -> SpanAttention:
        spans = [
            _SegmentSpan(end - len(segment.token_ids), end, its_blocks(), segment.stop, mask())
            for segment, end, its_blocks, mask in zip(segments, ends, blocks, masks, strict=True)
        ]
        return SpanAttention(spans, block_tokens)

    return attention


class SpanAttention:
    def __init__(self, spans: Sequence[_SegmentSpan], block_tokens: int) -> None:
        self._spans, self._block_tokens = spans, block_tokens

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """``[N, heads, d]``."""
        heads, kv_heads, width = query.shape[0], keys.shape[0], query.shape[2]
        out = query.new_empty(query.shape[1], heads, values.shape[2])
        for first, last, blocks, kv_len, mask in self._spans:
            tokens = last - first
            # The query heads that share a KV head are stacked, so grouped-query attention needs no repeated keys.
            stacked = query[:, first:last].reshape(1, kv_heads, heads // kv_heads * tokens, width)
            k, v = (_in_order(cache, blocks[None], self._block_tokens)[:, :, :kv_len] for cache in (keys, values))
            attended = scaled_dot_product_attention(stacked, k, v, attn_mask=mask, scale=scale)
            out[first:last] = attended.view(heads, tokens, -1).transpose(0, 1)
        return out


def _in_order(cache: Tensor, blocks: Tensor, block_tokens: int) -> Tensor:
    """Gather ``[tiles, kv_heads, positions, d]`` from ``blocks`` ``[tiles, n]``, whole blocks at a time."""
    kv_heads, slots, width = cache.shape
    first = torch.arange(0, kv_heads * slots // block_tokens, slots // block_tokens, device=cache.device)
    at = first[None, :, None] + blocks[:, None]
    rows = cache.view(-1, block_tokens * width).index_select(0, at.flatten())
    return rows.view(len(blocks), kv_heads, -1, width)


def _prepare_mask(segment: Segment, group: int, like: Tensor, upload: Upload) -> Callable[[], Tensor | None]:
    """Return a maker of ``[heads per KV head * tokens, kv_len]`` additive; it gives None if all keys are visible."""
    tokens, stop = len(segment.token_ids), segment.stop
    if tokens == 1 and not segment.parents:
        return lambda: None
    new = min(tokens, len(segment.parents))
    unseen = upload.add(~ancestors(segment.parents)[len(segment.parents) - new :]) if segment.parents else None

    def mask() -> Tensor:
        at = torch.arange(segment.start, stop, device=like.device)
        hidden = torch.arange(stop, device=like.device)[None, :] > at[:, None]
        if unseen is not None:
            hidden[tokens - new :, segment.tree_start :] = unseen().bool()
        mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
        return mask.masked_fill_(hidden, float("-inf")).repeat(group, 1)

    return mask


@dataclass(slots=True)
class _Tile:
    """Rows of one chain at consecutive positions, computed in one call; or one node of a tree."""

    rows: range  # in the packed row
    position: int  # of the first row
    slots: Sequence[int]  # where its keys are: blocks of a chain, or slots of a tree node's path


@dataclass(slots=True)
class _Group:
    """Tiles of one shape, as tensors."""

    rows: Tensor  # ``[tiles, size]`` of the packed row; a shorter tile is filled up with its last row
    kept: Tensor  # ``[n]`` indices into the flattened ``rows``, without the filling
    table: Tensor  # ``[tiles or 1, keys / block_tokens]`` blocks, or ``[tiles, keys]`` slots
    mask: Tensor  # ``[tiles, 1, group * size, keys]`` additive
    by_block: bool


@dataclass(slots=True)
class _TileShape:
    """Shape by which tiles are grouped into one call."""

    size: int
    keys: int
    chain: int | None  # index of a sequence with several tiles, which share its gathered keys; else None
    by_block: bool
    tiles: list[_Tile] = field(default_factory=list)


def prepare_tiled_attention(
    segments: Sequence[Segment], block_tokens: int, group: int, like: Tensor, sizes: Sizes, upload: Upload
) -> Callable[[], "TiledAttention"]:
    """Make batch-invariant attention; arguments as ``prepare_span_attention``, ``sizes`` of ``agreeing_rows``."""
    shapes: dict[tuple[int, int, int | None, bool], _TileShape] = {}
    first, step = 0, keys_step(block_tokens)
    for number, segment in enumerate(segments):
        chain = _chain_tiles(segment, first, block_tokens, step)
        several = number if len(chain) > 1 else None
        for tile in (*chain, *_tree_tiles(segment, first, block_tokens)):
            by_block, keys = tile.position < segment.tree_start, _keys_of(tile.position, step)
            key = (sizes.at_least(len(tile.rows)), keys, several if by_block else None, by_block)
            shapes.setdefault(key, _TileShape(*key)).tiles.append(tile)
        first += len(segment.token_ids)
    groups = [_prepare_group(shape, group, like, block_tokens, upload) for shape in shapes.values()]
    return lambda: TiledAttention([one() for one in groups], block_tokens)


class TiledAttention:
    """Batch-invariant attention: a row's bits depend on its own prefix only."""

    def __init__(self, groups: Sequence[_Group], block_tokens: int) -> None:
        self._groups, self._block_tokens = groups, block_tokens

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        heads, kv_heads, width = query.shape[0], keys.shape[0], query.shape[2]
        out = query.new_empty(query.shape[1], heads, values.shape[2])
        grouped = query.view(kv_heads, heads // kv_heads, *query.shape[1:])
        for one in self._groups:  # shapes below: query [tiles, kv_heads, group * size, d], keys [.., keys, d]
            tiles, size = one.rows.shape
            stacked = grouped[:, :, one.rows].permute(2, 0, 1, 3, 4).reshape(tiles, kv_heads, -1, width)
            k, v = (self._gathered(cache, one).expand(tiles, -1, -1, -1) for cache in (keys, values))
            attended = scaled_dot_product_attention(stacked, k, v, attn_mask=one.mask, scale=scale)
            by_row = attended.view(tiles, kv_heads, -1, size, attended.shape[-1]).permute(0, 3, 1, 2, 4)
            out[one.rows.flatten()[one.kept]] = by_row.reshape(tiles * size, heads, -1)[one.kept]
        return out

    def _gathered(self, cache: Tensor, one: _Group) -> Tensor:
        """``[tiles or 1, kv_heads, keys, d]``."""
        return _in_order(cache, one.table, self._block_tokens if one.by_block else 1)


def agreeing_rows(heads: int, kv_heads: int, width: int, block_tokens: int, like: Tensor) -> Sizes:
    """Return the numbers of rows of a sequence that agree bit for bit, by trials with sums that nearly cancel."""
    half, agreed = width // 2, list[Sizes]()
    for seed, times, tiles in _TRIED:
        generator, keys = torch.Generator().manual_seed(seed), times * keys_step(block_tokens)
        # Scores: the second half of d takes back all but ``_LEFT`` of the first. Values: likewise over the keys.
        query = _TRIED_SCORE * torch.randn(LARGEST, heads, width, generator=generator).to(like)
        query[:, :, half : 2 * half] = query[:, :, :half]
        k, v = torch.randn(2, 1, kv_heads, keys, width, generator=generator).to(like)
        k[..., half : 2 * half] = k[..., :half] * (_LEFT - 1.0)
        v[:, :, keys // 2 :] = v[:, :, : keys // 2] * (_LEFT - 1.0)

        def attended(rows: Tensor, k: Tensor = k, v: Tensor = v, keys: int = keys, tiles: int = tiles) -> Tensor:
            many = 1 if len(rows) == LARGEST else tiles  # LARGEST rows are the reference, always one tile
            stacked = rows.view(-1, kv_heads, heads // kv_heads, width).permute(1, 2, 0, 3)
            mask = torch.zeros(many, 1, heads // kv_heads * len(rows), keys).to(like)
            flat = stacked.reshape(1, kv_heads, -1, width)
            q, own_k, own_v = (one.expand(many, -1, -1, -1) for one in (flat, k, v))
            found = scaled_dot_product_attention(q, own_k, own_v, attn_mask=mask)[-1]
            return found.view(heads, len(rows), width).transpose(0, 1)

        agreed.append(agreeing(attended, query))
    common = set.intersection(*(set(sizes.counts) for sizes in agreed))
    return Sizes(tuple(sorted(common)))


def keys_step(block_tokens: int) -> int:
    """Return the step in which the number of keys grows with a row's position: whole blocks, about ``_KEYS``."""
    return max(1, _KEYS // block_tokens) * block_tokens


def _keys_of(position: int, step: int) -> int:
    return -(-(position + 1) // step) * step


def _chain_tiles(segment: Segment, first: int, block_tokens: int, step: int) -> list[_Tile]:
    """Cut the tokens before the tree into tiles: at multiples of ``step``, and after ``LARGEST`` rows."""
    tiles, at, stop = list[_Tile](), segment.start, max(segment.start, segment.tree_start)
    while at < stop:
        last = min(stop, _keys_of(at, step), at + LARGEST)
        row = first + at - segment.start
        blocks = segment.blocks[: -(-last // block_tokens)]
        tiles.append(_Tile(range(row, row + last - at), at, blocks))
        at = last
    return tiles


def _tree_tiles(segment: Segment, first: int, block_tokens: int) -> list[_Tile]:
    """Return a tile for each new node, with the slots of its path in the order of positions."""
    if not segment.parents:
        return []
    base, seen = segment.tree_start, ancestors(segment.parents)
    slots = [segment.blocks[at // block_tokens] * block_tokens + at % block_tokens for at in range(segment.stop)]
    tiles = []
    for node in range(max(0, segment.start - base), len(segment.parents)):
        path = [slots[base + above] for above in seen[node].nonzero()[0]]
        row = first + base + node - segment.start
        tiles.append(_Tile(range(row, row + 1), base + len(path) - 1, [*slots[:base], *path]))
    return tiles


def _prepare_group(
    shape: _TileShape, group: int, like: Tensor, block_tokens: int, upload: Upload
) -> Callable[[], _Group]:
    tiles, size, device = shape.tiles, shape.size, like.device
    rows = [[*tile.rows, *[tile.rows[-1]] * (size - len(tile.rows))] for tile in tiles]
    kept = [number * size + at for number, tile in enumerate(tiles) for at in range(len(tile.rows))]
    entries = shape.keys // block_tokens if shape.by_block else shape.keys
    # Filled up with keys that exist: the mask hides them, but 0 times their values must be finite.
    tables = [[*tile.slots, *[tile.slots[0]] * (entries - len(tile.slots))] for tile in tiles]
    if shape.chain is not None:  # tiles of one chain: the last one's blocks include those of all
        tables = tables[-1:]
    lengths = [[*range(tile.position, tile.position + len(tile.rows))] for tile in tiles]
    positions = [[*at, *[at[-1]] * (size - len(at))] for at in lengths]
    rows_at, kept_at = upload.add(rows), upload.add(kept)
    tables_at, positions_at = upload.add(tables), upload.add(positions)

    def made() -> _Group:
        hidden = torch.arange(shape.keys, device=device) > positions_at()[:, :, None]
        mask = torch.zeros(hidden.shape, dtype=like.dtype, device=device).masked_fill_(hidden, float("-inf"))
        return _Group(rows_at(), kept_at(), tables_at(), mask.repeat(1, group, 1)[:, None], shape.by_block)

    return made
