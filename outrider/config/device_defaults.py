"""Defaults that depend on the device: the size of a verifier's passes, and its KV memory.

On a CPU every row takes time, so a long prompt is computed in small chunks and other requests make progress. A GPU
reads its weights in the time of hundreds of rows: small passes would leave it idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Limits of one forward pass: prefix positions, all positions, blocks."""

    prefill_chunk_tokens: int
    max_tokens: int
    max_blocks: int


_OF_DEVICE: Mapping[str, BatchSize] = {"cpu": BatchSize(64, 512, 32), "cuda": BatchSize(2048, 8192, 256)}


def batch_size(device: str, prefill_chunk_tokens: int | None = None) -> BatchSize:
    """Return the device's limits, with the configured chunk unless that is None; a pass has room for one chunk."""
    own = _OF_DEVICE[device]
    chunk = own.prefill_chunk_tokens if prefill_chunk_tokens is None else prefill_chunk_tokens
    return BatchSize(chunk, max(own.max_tokens, chunk), own.max_blocks)


def kv_memory_mib(device: str) -> int | None:
    """Return the default KV memory; None: what a GPU has free once the model is loaded. Main memory is shared."""
    return {"cpu": 512, "cuda": None}[device]
