"""A token tree as one continuation for each leaf's path, for models that take no mask (``BranchModel``).

The first leaf's path goes on in the sequence's own blocks, like a chain. Every other path has blocks of its own from
the one on in which the tree begins; the full blocks before it are shared. What of that first block is resident already
is copied, what is not is computed again. Nodes on several paths are computed on each of them, but their logits are read
once, from the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.engines.forward_model import BlockCopy, Segment
from outrider.engines.kv.store import SequenceKv


@dataclass(frozen=True, slots=True)
class Branches:
    """The paths of a block's tree."""

    paths: tuple[tuple[int, ...], ...]  # of each leaf, its nodes from the root on; at least one
    length: int  # committed and forced tokens: the position of the tree's roots

    def fork_blocks(self, block_tokens: int) -> list[int]:
        """Blocks that each path but the first needs for itself."""
        first = self.length // block_tokens
        return [-(-(self.length + len(path)) // block_tokens) - first for path in self.paths[1:]]

    def own_positions(self) -> int:
        """Positions of the sequence's own continuation: committed, forced and the first path's."""
        return self.length + len(self.paths[0])

    def blocks_needed(self, block_tokens: int) -> int:
        """KV blocks of the whole tree and all before it."""
        return -(-self.own_positions() // block_tokens) + sum(self.fork_blocks(block_tokens))

    def new_nodes(self) -> list[tuple[int, ...]]:
        """Of each path, the nodes on none before it; they are its last ones."""
        seen: set[int] = set()
        new = []
        for path in self.paths:
            new.append(tuple(node for node in path if node not in seen))
            seen.update(path)
        return new

    def row_order(self) -> list[int]:
        """Where each node's row is among those of all paths' new nodes, one path after another."""
        at = {node: row for row, node in enumerate(node for nodes in self.new_nodes() for node in nodes)}
        return [at[node] for node in range(len(at))]

    def carrier(self, accepted: Sequence[int]) -> int:
        """The first path that an accepted one is the beginning of."""
        return next(i for i, path in enumerate(self.paths) if path[: len(accepted)] == tuple(accepted))


@dataclass(frozen=True, slots=True)
class ForkedPath:
    """One path besides the first, and the blocks it has for itself."""

    segment: Segment
    private: list[int]
    copies: tuple[BlockCopy, ...]


def fork_paths(
    branches: Branches, kv: SequenceKv, context: Sequence[int], draft: Sequence[int], start: int, block_tokens: int
) -> list[ForkedPath]:
    """Allocate and lay out every path but the first; a rollback gives back what is not adopted.

    Args:
        branches: of the block.
        kv: the sequence, with room for the first path.
        context: committed and forced tokens.
        draft: the block's tokens.
        start: positions whose KV was resident before the pass.
        block_tokens: positions in a KV block.
    """
    first = branches.length // block_tokens
    begin = first * block_tokens
    resident = max(start, begin)
    forked = []
    for path, new in zip(branches.paths[1:], branches.new_nodes()[1:], strict=True):
        private = kv.fork(branches.length, branches.length + len(path))
        tokens = [*context[resident:], *(draft[node] for node in path)]
        segment = Segment(tokens, resident, [*kv.blocks[:first], *private], len(new))
        copies = (BlockCopy(kv.blocks[first], private[0]),) if resident > begin else ()
        forked.append(ForkedPath(segment, private, copies))
    return forked
