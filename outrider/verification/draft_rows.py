"""The draft distributions of one block, as both sides compute them from what crossed the link."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.exchanged import DenseDraft, DraftDistribution, IntRow, ScalarDraft, SparseDraft
from outrider.sampling.distributions import Probs, softmax


class DraftRows:
    """Rows are those of the target: row 0 is what the children of the prefix were drawn from, 1 + n those of node n."""

    def __init__(self, distribution: DraftDistribution, children: Sequence[Sequence[int]], vocab_size: int) -> None:
        """Read rows as they are asked for: most of a block's are only looked at if something is rejected.

        Args:
            distribution: of the block; its rows are those that have children, in order.
            children: nodes by row, ``DraftShape.children``.
            vocab_size: length of a dense row.
        """
        self._distribution = distribution
        self._vocab_size = vocab_size
        self._index = {row: index for index, row in enumerate(row for row, nodes in enumerate(children) if nodes)}
        self._probs: dict[int, Probs] = {}

    def prob(self, row: int, node: int, token_id: int) -> float:
        """Probability with which ``token_id``, node ``node``, was drawn as the first child at ``row``; 0 if never."""
        sent = self._distribution
        if isinstance(sent, ScalarDraft):
            return int(sent.numerators[node]) / 2.0**sent.bits
        if not isinstance(sent, SparseDraft):
            return float(self._sent(row)[token_id])
        token_ids = sent.token_ids[self._index[row]]
        place = int(np.searchsorted(token_ids, token_id))
        found = place < len(token_ids) and token_ids[place] == token_id
        return float(self._sent(row)[place]) if found else 0.0

    def dense(self, row: int) -> Probs:
        """``[vocab]``, what the children at ``row`` were drawn from. Scalars do not tell."""
        if not isinstance(self._distribution, SparseDraft):
            return self._sent(row)
        probs = np.zeros(self._vocab_size)
        probs[self._distribution.token_ids[self._index[row]]] = self._sent(row)
        return probs

    def place(self, row: int, token_id: int) -> int:  # noqa: ARG002 (one signature for all)
        """Where ``dense(row)`` has a token."""
        return token_id

    def _sent(self, row: int) -> Probs:
        assert isinstance(self._distribution, SparseDraft | DenseDraft), "scalars have no rows"
        if row not in self._probs:
            self._probs[row] = softmax(self._distribution.logits[self._index[row]])
        return self._probs[row]


class CompactRows(DraftRows):
    """Rows of a sparse draft over the tokens it names: behind these, all others' mass together, and then 0.

    What the draft does not name it cannot have drawn, so the others share one fate, and of a token among them nothing
    is asked: it is found at the end.
    """

    def dense(self, row: int) -> Probs:
        """``[k + 2]``."""
        return np.append(self._sent(row), [0.0, 0.0])

    def place(self, row: int, token_id: int) -> int:
        """Where ``dense(row)`` has a token."""
        token_ids = self.token_ids(row)
        place = int(np.searchsorted(token_ids, token_id))
        return place if place < len(token_ids) and token_ids[place] == token_id else len(token_ids) + 1

    def token_ids(self, row: int) -> IntRow:
        """``[k]``, those named at ``row``."""
        assert isinstance(self._distribution, SparseDraft), "others name all tokens or none"
        return self._distribution.token_ids[self._index[row]]

    @property
    def rows(self) -> list[int]:
        """Those that have children."""
        return list(self._index)
