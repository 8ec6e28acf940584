"""Chunked prefill: prefixes are computed in chunks, the rows that decide a block in one pass."""

from collections.abc import Iterable

from outrider.contracts.cost import VerifyCost


def chunk_of(lacking_tokens: int, own_rows: int, chunk_left: int) -> tuple[int, int]:
    """Return how much of one block a pass computes.

    Args:
        lacking_tokens: positions still to compute, its own rows included.
        own_rows: the last of them, computed together in the pass that reaches the end of the prefix.
        chunk_left: prefix positions that the pass may still take.

    Returns:
        Positions computed, and how many of them count against the chunk. All are computed once the prefix fits.
    """
    prefix = max(0, lacking_tokens - own_rows)
    counted = min(prefix, chunk_left)
    return (lacking_tokens if counted == prefix else counted), counted


def pass_costs(blocks: Iterable[tuple[VerifyCost, int]], chunk_tokens: int) -> list[VerifyCost]:
    """Return what one pass computes of each block, given its cost and own rows; leave out blocks that get none."""
    costs = []
    for cost, own_rows in blocks:
        computed, counted = chunk_of(cost.new_tokens, own_rows, chunk_tokens)
        chunk_tokens -= counted
        if computed:
            costs.append(VerifyCost(computed, cost.cached_tokens))
    return costs
