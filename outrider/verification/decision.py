"""Decision of a block of draft tokens, and the shape of its chain or tree.

Target rows of chains and trees have the same numbers: row 0 predicts what follows the prefix, row 1 + n what follows
node n. For a chain, row i predicts ``draft[i]``, and row K the bonus token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from outrider.contracts.errors import ShapeError
from outrider.contracts.exchanged import CorrectionSource
from outrider.contracts.tree import node_paths

_KEPT_CHAINS = 64


@dataclass(frozen=True, slots=True)
class BlockDecision:
    path: tuple[int, ...]  # accepted nodes, indices into the draft, root first
    # correction or bonus token; None if no bonus was wanted, or the device draws the correction
    token_after: int | None
    deferred: CorrectionSource | None = None  # what the device draws the correction from
    overrides: tuple[int, ...] = ()  # accepted nodes that differ from the target's choice

    @property
    def accepted_len(self) -> int:
        return len(self.path)


@dataclass(frozen=True, slots=True)
class DraftShape:
    """Parents and children of the K tokens of a draft. ``shape_of`` makes and checks it."""

    parents: tuple[int, ...] | None  # None for a chain; else ``[K]``, -1 for a child of the prefix
    # nodes by the target row that predicts them, ``K + 1`` tuples; siblings in the order they were drawn
    children: tuple[tuple[int, ...], ...]

    @property
    def depth(self) -> int:
        """Number of nodes on the longest path."""
        return len(self.children) - 1 if self.parents is None else max(map(len, self.leaf_paths()))

    def leaf_paths(self) -> list[tuple[int, ...]]:
        """Return the nodes from the root to each leaf; one empty path if nothing was drafted."""
        nodes = len(self.children) - 1
        if self.parents is None or not nodes:
            return [tuple(range(nodes))]
        paths = node_paths(self.parents)
        return [paths[node] for node in range(nodes) if not self.children[1 + node]]


def shape_of(nodes: int, parents: Sequence[int] | None) -> DraftShape:
    """Check ``Block.parents`` of a draft of K ``nodes``. Raise ``ShapeError`` unless each parent precedes its child."""
    if parents is None:
        return _chain(nodes)
    if len(parents) != nodes or any(not -1 <= parent < node for node, parent in enumerate(parents)):
        raise ShapeError(
            f"a tree of {nodes} nodes needs one parent each, -1 or an earlier node; found {tuple(parents)}"
        )
    children: list[list[int]] = [[] for _ in range(nodes + 1)]
    for node, parent in enumerate(parents):
        children[1 + parent].append(node)
    return DraftShape(tuple(parents), tuple(map(tuple, children)))


@lru_cache(_KEPT_CHAINS)
def _chain(nodes: int) -> DraftShape:
    return DraftShape(None, (*((node,) for node in range(nodes)), ()))
