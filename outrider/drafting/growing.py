"""Grow a token tree best first: expand the nodes of the highest cumulative draft probability.

A node is worth its survival, the product of the probabilities on its path: that the target says just this. A tree of so
many rows commits most tokens if it holds those of the highest survival, as its expected length is their sum; and as no
node survives more often than its parent, they make a tree.

They are found layer by layer. Every pass of the device expands all nodes of the last layer that are among the best
``rows`` known so far, but for the last of them: whatever grows behind any other has ``rows`` better ones before it. So
nothing is lost against expanding them one by one, which would take a pass for each, and a tree as deep as this takes as
many passes as it has layers. What is computed beyond what is sent is what better nodes came to stand before.

Which nodes are sent is decided after they are known. That is exact where the output is the target's own choice whatever
is drafted, under greedy verification and shared noise, and nowhere else: under a ratio rule a drawn node is to be sent.

Source: EAGLE-2 (Li et al. 2024, arXiv 2406.16858), expansion and reranking; OPT-Tree (Wang et al. 2024, arXiv
2406.17276): the sum of survivals, and that a greedy layer-by-layer choice has the largest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

from outrider.contracts.drafting import Child
from outrider.contracts.errors import ParameterError
from outrider.contracts.price import DraftPrice


@dataclass(frozen=True, slots=True)
class Branch:
    """A node, as the tokens that lead to it."""

    token_ids: tuple[int, ...]  # from the prefix, its own last
    survival: float  # that the target says all of them


ROOT = Branch((), 1.0)
_FREE = DraftPrice()


@dataclass(frozen=True, slots=True)
class GrowingTree:
    """A tree between two passes of the device.

    Attributes:
        rows: nodes it may have.
        price: what a node has to bring to be sent, and a further pass to be made, in expected tokens.
        branches: its nodes at present, best first, parents before their children.
        growing: those whose children are to be told next; () if it is complete.

    Raises:
        ParameterError: no row.
    """

    rows: int
    price: DraftPrice = _FREE
    branches: tuple[Branch, ...] = ()
    growing: tuple[Branch, ...] = (ROOT,)

    def __post_init__(self) -> None:
        """Refuse a tree of nothing."""
        if self.rows < 1:
            raise ParameterError("rows", "at least 1", self.rows)

    def grown(self, children: Sequence[Sequence[Child]]) -> "GrowingTree":
        """One layer on.

        Args:
            children: of each growing node in order, no token twice; the likeliest ``rows`` are enough.
        """
        new = [
            Branch((*parent.token_ids, token_id), parent.survival * probability)
            for parent, own in zip(self.growing, children, strict=True)
            for token_id, probability in own
        ]
        value = [branch for branch in new if branch.survival > self.price.send_above]
        # Stable: of equals the earlier stays before, so a parent before its children.
        branches = tuple(sorted((*self.branches, *value), key=_best_first)[: self.rows])
        kept, depth = set(branches[: self.rows - 1]), len(self.growing[0].token_ids) + 1
        growing = tuple(branch for branch in new if branch in kept and len(branch.token_ids) == depth)
        pays = fsum(branch.survival for branch in growing) > self.price.go_on_above
        return replace(self, branches=branches, growing=growing if pays else ())

    def block(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Its tokens and each one's parent as ``Block.parents`` has them: layer by layer, siblings side by side."""
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
