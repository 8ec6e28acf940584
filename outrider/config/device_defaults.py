"""What is left to the device: how much a verifier computes in one pass, and how much it remembers.

A processor is slowed down by every row, so a long prompt is computed in small pieces and others get on. A GPU reads its
weights in the time of hundreds of rows: small passes would leave it idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Of one forward pass: positions of prefixes, all positions, generations."""

    prefill_chunk_tokens: int
    max_tokens: int
    max_blocks: int


_OF_DEVICE: Mapping[str, BatchSize] = {"cpu": BatchSize(64, 512, 32), "cuda": BatchSize(2048, 8192, 256)}


def batch_size(
    device: str, prefill_chunk_tokens: int | None, max_tokens: int | None, max_blocks: int | None
) -> BatchSize:
    """What is asked for, and the device's own where it is None; a chunk of its own fits the tokens asked for."""
    own = _OF_DEVICE[device]
    tokens = own.max_tokens if max_tokens is None else max_tokens
    if prefill_chunk_tokens is None:
        prefill_chunk_tokens = min(own.prefill_chunk_tokens, tokens)
    return BatchSize(prefill_chunk_tokens, tokens, own.max_blocks if max_blocks is None else max_blocks)


def kv_memory_mib(device: str) -> int | None:
    """Of KV; None is what a GPU has free once the model is loaded. A machine's main memory is everybody's."""
    return {"cpu": 512, "cuda": None}[device]
