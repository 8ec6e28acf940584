"""Express committed tokens relative to the drafter's last block, which both ends have.

A block's tokens are the correction it began with, if any, then its nodes, numbered from 1. A verdict is the number of
the last accepted one, 0 for none: ``ceil(log2(length + 1))`` bits select the committed ones of the drafter's tokens.
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
    def length(self) -> int:
        """Number of tokens, the largest verdict."""
        return len(self.token_ids) + self._first_node - 1

    @property
    def _first_node(self) -> int:
        """Number of the token that is node 0."""
        return 1 if self.correction is None else 2

    def accepted(self, committed: tuple[int, ...]) -> int:
        """Number the last token of the longest path that ``committed`` begins with, of the first of several."""
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

    def tokens_to(self, number: int) -> tuple[int, ...]:
        """Return the tokens on the path that ends with the token of a number, ``0 .. length``; none for 0."""
        if number == 0:
            return ()
        tokens: list[int] = []
        node = number - self._first_node
        while node >= 0:
            tokens.append(self.token_ids[node])
            node = self._parent(node)
        if self.correction is not None:
            tokens.append(self.correction)
        return tuple(reversed(tokens))

    def _parent(self, node: int) -> int:
        return node - 1 if self.parents is None else self.parents[node]
