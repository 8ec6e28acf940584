"""Token trees as one continuation per leaf, for models without a tree mask (``BranchModel``).

The first leaf's path extends the sequence's own KV blocks, like a chain. Every other path has KV blocks of its own,
from the one in which the tree begins; the full blocks before that are shared. Resident positions of that first block
are copied, the others are computed again. A node on several paths is computed on each of them, but its logits are
taken once, from the first path.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.engines.kv.store import SequenceKv
from outrider.engines.segments import BlockCopy, Segment


@dataclass(frozen=True, slots=True)
class Branches:
    """The paths of a block's tree."""

    paths: tuple[tuple[int, ...], ...]  # of each leaf, its nodes from the root on; at least one path
    prefix_length: int  # committed tokens, those the engine lacks included: the position of the tree's roots

    def fork_blocks(self, block_tokens: int) -> list[int]:
        """Return the number of KV blocks that each path but the first needs for itself."""
        first = self.prefix_length // block_tokens
        return [-(-(self.prefix_length + len(path)) // block_tokens) - first for path in self.paths[1:]]

    def own_positions(self) -> int:
        """Return the positions in the sequence's own blocks: those of committed tokens and of the first path."""
        return self.prefix_length + len(self.paths[0])

    def kv_blocks_needed(self, block_tokens: int) -> int:
        """Return the number of KV blocks of the whole tree and all tokens before it."""
        return -(-self.own_positions() // block_tokens) + sum(self.fork_blocks(block_tokens))

    def new_nodes(self) -> list[tuple[int, ...]]:
        """Return, for each path, the nodes that no earlier path has; they are its last nodes."""
        seen: set[int] = set()
        new = []
        for path in self.paths:
            new.append(tuple(node for node in path if node not in seen))
            seen.update(path)
        return new

    def row_order(self) -> list[int]:
        """Return each node's row; rows are the paths' new nodes, path after path."""
        at = {node: row for row, node in enumerate(node for nodes in self.new_nodes() for node in nodes)}
        return [at[node] for node in range(len(at))]

    def path_holding(self, accepted: Sequence[int]) -> int:
        return next(i for i, path in enumerate(self.paths) if path[: len(accepted)] == tuple(accepted))


@dataclass(frozen=True, slots=True)
class ForkedPath:
    """A path besides the first, with its private KV blocks and the copies that fill the first of them."""

    segment: Segment
    private: list[int]
    copies: tuple[BlockCopy, ...]


def fork_paths(
    branches: Branches, kv: SequenceKv, context: Sequence[int], draft: Sequence[int], start: int, block_tokens: int
) -> list[ForkedPath]:
    """Allocate and lay out every path but the first. A rollback frees the blocks of paths that are not adopted.

    Args:
        branches: the tree's paths.
        kv: the sequence, whose blocks hold the first path already.
        context: committed tokens, those the engine lacks included.
        draft: the block's tokens.
        start: positions whose KV was resident before the pass.
        block_tokens: positions in a KV block.
    """
    first = branches.prefix_length // block_tokens
    begin = first * block_tokens
    resident = max(start, begin)  # positions from ``begin`` to here are copied, the rest is computed
    forked = []
    for path, new in zip(branches.paths[1:], branches.new_nodes()[1:], strict=True):
        private = kv.fork(branches.prefix_length, branches.prefix_length + len(path))
        tokens = [*context[resident:], *(draft[node] for node in path)]
        segment = Segment(tokens, resident, [*kv.blocks[:first], *private], len(new))
        copies = (BlockCopy(kv.blocks[first], private[0]),) if resident > begin else ()
        forked.append(ForkedPath(segment, private, copies))
    return forked
