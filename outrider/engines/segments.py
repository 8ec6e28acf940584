"""What a forward pass computes and copies: tokens of sequences over numbered KV blocks. Free of torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.contracts.tree import node_depths


@dataclass(frozen=True, slots=True)
class Segment:
    """The new tokens of one sequence in a ragged batch."""

    # for slots ``start, start + 1, ...``; at least one. A token's slot is its position, except in a tree.
    token_ids: Sequence[int]
    start: int  # slots whose KV is resident, or written by an earlier segment of the same pass
    blocks: Sequence[int]  # the sequence's KV blocks, covering ``start + len(token_ids)`` slots
    logit_rows: int  # number of last tokens whose logits are wanted, 0 .. len(token_ids)
    # parents of a masked token tree at the sequence's end, as in ``Block.parents``; empty without one. The nodes are
    # the sequence's last tokens. The first of them may be resident, so there may be more than new ones.
    parents: Sequence[int] = ()

    @property
    def stop(self) -> int:
        """Number of slots with KV after the pass."""
        return self.start + len(self.token_ids)

    @property
    def tree_start(self) -> int:
        return self.stop - len(self.parents)

    def positions(self) -> list[int]:
        """Return the absolute position of each new token; siblings of a tree have the same."""
        base = self.tree_start
        slots = [*range(self.start, base), *(base + depth - 1 for depth in node_depths(self.parents))]
        return slots[-len(self.token_ids) :]


@dataclass(frozen=True, slots=True)
class Move:
    """KV of one sequence to copy: from slot ``sources[i]`` to slot ``targets[i]`` of ``blocks``."""

    blocks: Sequence[int]
    sources: Sequence[int]
    targets: Sequence[int]


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A whole KV block to copy before a pass, for a tree's branch that begins in the middle of a block."""

    source: int
    target: int
