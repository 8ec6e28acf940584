"""Grow a dynamic draft tree: keep the ``rows`` nodes of highest cumulative draft probability, layer by layer.

A node's gain is its survival, the product of the probabilities on its path. A tree's expected accepted length is the
sum of its nodes' survivals, so the best tree of ``rows`` nodes holds those of highest survival. They form a tree, since
no node's survival exceeds its parent's.

Every pass of the device expands all nodes of the last layer that are among the best ``rows`` - 1 known so far. Children
of any other node have ``rows`` better nodes before them. So the result is that of expanding nodes one by one, best
first, with one pass per layer instead of one per node. Nodes that better ones displace later are computed in vain.

Which nodes are sent is decided after their tokens are known. This is exact only where the output is the target's own
choice whatever is drafted (greedy verification and shared noise). Under a ratio rule every drawn node must be sent.

Source: EAGLE-2 (Li et al. 2024, arXiv 2406.16858), expansion and reranking; OPT-Tree (Wang et al. 2024, arXiv
2406.17276): the sum of survivals, and that a greedy layer-by-layer choice maximises it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

from outrider.contracts.drafting import Child
from outrider.contracts.price import DraftPrice


@dataclass(frozen=True, slots=True)
class Branch:
    """A node, given by its path."""

    token_ids: tuple[int, ...]  # path from the prefix, the node's own token last
    survival: float  # probability that all of them are accepted


ROOT = Branch((), 1.0)
_FREE = DraftPrice()


@dataclass(frozen=True, slots=True)
class GrowingTree:
    """A tree between two passes of the device. Immutable."""

    rows: int  # largest number of nodes, >= 1
    price: DraftPrice = _FREE  # least gain of a node to be sent, and of a further pass to be made, in expected tokens
    branches: tuple[Branch, ...] = ()  # its nodes at present, best first, parents before their children
    # nodes to be expanded by the next pass, in the order in which ``grown`` takes their children; () if the tree is
    # complete
    growing: tuple[Branch, ...] = (ROOT,)

    def grown(self, children: Sequence[Sequence[Child]]) -> "GrowingTree":
        """Return the tree with one layer more: ``children`` by growing node, the best ``rows`` of each are enough."""
        new = [
            Branch((*parent.token_ids, token_id), parent.survival * probability)
            for parent, own in zip(self.growing, children, strict=True)
            for token_id, probability in own
        ]
        value = [branch for branch in new if branch.survival > self.price.send_above]
        # The sort is stable: of equal survivals the earlier node stays first, so parents stay before their children.
        branches = tuple(sorted((*self.branches, *value), key=_best_first)[: self.rows])
        kept, depth = set(branches[: self.rows - 1]), len(self.growing[0].token_ids) + 1
        growing = tuple(branch for branch in new if branch in kept and len(branch.token_ids) == depth)
        pays = fsum(branch.survival for branch in growing) > self.price.go_on_above
        return replace(self, branches=branches, growing=growing if pays else ())

    def block(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return tokens and parents as ``Block.parents`` has them: layer by layer, siblings side by side."""
        numbers: dict[tuple[int, ...], int] = {(): -1}
        deepest = max((len(branch.token_ids) for branch in self.branches), default=0)
        for depth in range(1, deepest + 1):
            layer = [branch.token_ids for branch in self.branches if len(branch.token_ids) == depth]
            layer.sort(key=lambda token_ids: numbers[token_ids[:-1]])
            for token_ids in layer:
                numbers[token_ids] = len(numbers) - 1
        paths = [path for path in numbers if path]
        return tuple(path[-1] for path in paths), tuple(numbers[path[:-1]] for path in paths)


def _best_first(branch: Branch) -> float:
    return -branch.survival
