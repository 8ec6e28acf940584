"""How much of a cold block one forward pass computes: prefixes go in chunks, what decides a block goes together."""

from collections.abc import Iterable

from outrider.contracts.cost import VerifyCost


def chunk_of(lacking_tokens: int, own_rows: int, chunk_left: int) -> tuple[int, int]:
    """What a pass computes of one block.

    Args:
        lacking_tokens: positions still to compute, its own rows included.
        own_rows: the last of them, which go together in one pass with the end of the prefix before them.
        chunk_left: positions of prefixes that the pass has room for.

    Returns:
        Positions computed, and those of them that count against the chunk. All are computed once the prefix fits.
    """
    prefix = max(0, lacking_tokens - own_rows)
    counted = min(prefix, chunk_left)
    return (lacking_tokens if counted == prefix else counted), counted


def pass_costs(blocks: Iterable[tuple[VerifyCost, int]], chunk_tokens: int) -> list[VerifyCost]:
    """What one pass over blocks computes, given the cost and the own rows of each; none where nothing is."""
    costs = []
    for cost, own_rows in blocks:
        computed, counted = chunk_of(cost.new_tokens, own_rows, chunk_tokens)
        chunk_tokens -= counted
        if computed:
            costs.append(VerifyCost(computed, cost.cached_tokens))
    return costs
