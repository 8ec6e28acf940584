"""Buckets of rows, and buffers that the passes of a model share. Pure.

On a GPU a pass is filled up to a bucket of rows, and its integers lie in one buffer, those of the rows first. So passes
of one bucket have inputs of the same shapes at the same addresses: what CUDA graphs need, which are not captured yet.
Rows that fill up write their keys and values into a spare block, which nobody reads.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch

LARGEST_BUCKET = 256
BUCKETS = (1, 2, 4, *range(8, LARGEST_BUCKET + 1, 8))  # as of vLLM's CUDA graphs
_INPUTS = 2**16  # integers of a pass: rows, KV blocks, trees; a pass with more of them gets a buffer of its own


def bucket_of(rows: int) -> int:
    """Return how many rows a pass is filled up to; one of more than ``LARGEST_BUCKET`` stays as it is."""
    return BUCKETS[bisect_left(BUCKETS, rows)] if rows <= LARGEST_BUCKET else rows


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor that a model keeps from pass to pass."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class PoolShape:
    layers: int
    kv_heads: int
    head_dim: int
    blocks: int
    block_tokens: int


def kept_buffers(pool: PoolShape, dtype: torch.dtype, *, filled: bool) -> Iterator[Buffer]:
    """Yield ``keys.N`` and ``values.N`` of each layer; with ``filled`` with a spare block each, and ``inputs``."""
    shape = (pool.kv_heads, (pool.blocks + filled) * pool.block_tokens, pool.head_dim)
    for layer in range(pool.layers):
        yield Buffer(f"keys.{layer}", shape, dtype)
        yield Buffer(f"values.{layer}", shape, dtype)
    if filled:
        yield Buffer("inputs", (_INPUTS,), torch.int64)
