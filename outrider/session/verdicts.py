"""Express committed tokens relative to the drafter's last block, which both ends have.

A block's elements are the correction it began with, if any, then its nodes. A verdict is the last accepted element,
counted from 1, or 0: ``ceil(log2(elements + 1))`` bits select the committed ones of the drafter's tokens.
"""

from dataclasses import dataclass

from outrider.contracts.drafting import Draft


@dataclass(frozen=True, slots=True)
class SentBlock:
    """Tokens of a block, which both ends keep. Fields as in ``Draft``."""

    correction: int | None
    token_ids: tuple[int, ...]
    parents: tuple[int, ...] | None

    @staticmethod
    def of(draft: Draft) -> "SentBlock":
        """Keep the tokens of a block that was sent."""
        return SentBlock(draft.correction, draft.token_ids, draft.parents)

    @property
    def elements(self) -> int:
        """Number of elements, the largest verdict."""
        return len(self.token_ids) + self._first_node - 1

    @property
    def _first_node(self) -> int:
        """The element that is node 0."""
        return 1 if self.correction is None else 2

    def accepted(self, committed: tuple[int, ...]) -> int:
        """Return the last element of the longest path that ``committed`` begins with; the first of several."""
        start = 0
        if self.correction is not None:
            if committed[:1] != (self.correction,):
                return 0
            start = 1
        lengths: list[int] = []  # of the matching path that ends with each node, -1 if it does not match
        best, best_length = self._first_node - 1, start
        for node, token_id in enumerate(self.token_ids):
            parent = self._parent(node)
            before = start if parent < 0 else lengths[parent]
            matches = before >= 0 and committed[before : before + 1] == (token_id,)
            lengths.append(before + 1 if matches else -1)
            if lengths[node] > best_length:
                best, best_length = self._first_node + node, lengths[node]
        return best

    def tokens_to(self, element: int) -> tuple[int, ...]:
        """Return the tokens on the path that ends with an element, ``0 .. elements``."""
        if element == 0:
            return ()
        tokens: list[int] = []
        node = element - self._first_node
        while node >= 0:
            tokens.append(self.token_ids[node])
            node = self._parent(node)
        if self.correction is not None:
            tokens.append(self.correction)
        return tuple(reversed(tokens))

    def _parent(self, node: int) -> int:
        return node - 1 if self.parents is None else self.parents[node]
