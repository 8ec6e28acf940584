"""Draft distributions of one block, computed alike at both ends from what crossed the link."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.exchanged import DenseDraft, DraftDistribution, IntRow, ScalarDraft, SparseDraft
from outrider.sampling.distributions import Probs, softmax


class DraftRows:
    """Rows numbered as the target's: the prefix's children were drawn from row 0, those of node n from row 1 + n."""

    def __init__(self, distribution: DraftDistribution, children: Sequence[Sequence[int]], vocab_size: int) -> None:
        """Compute rows lazily: most of a block's, one for each node with ``children``, serve only a rejection."""
        self._distribution = distribution
        self._vocab_size = vocab_size
        self._index = {row: index for index, row in enumerate(row for row, nodes in enumerate(children) if nodes)}
        self._probs: dict[int, Probs] = {}

    def prob(self, row: int, node: int, token_id: int) -> float:
        """Return the probability of drawing ``token_id``, node ``node``, as the first child at ``row``; 0 if never."""
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
        """Return ``[vocab]``, the distribution of the children at ``row``. Not defined for scalars."""
        if not isinstance(self._distribution, SparseDraft):
            return self._sent(row)
        probs = np.zeros(self._vocab_size)
        probs[self._distribution.token_ids[self._index[row]]] = self._sent(row)
        return probs

    def place(self, row: int, token_id: int) -> int:  # noqa: ARG002 (one signature for all)
        return token_id

    def _sent(self, row: int) -> Probs:
        assert isinstance(self._distribution, SparseDraft | DenseDraft), "scalars have no rows"
        if row not in self._probs:
            self._probs[row] = softmax(self._distribution.logits[self._index[row]])
        return self._probs[row]


class CompactRows(DraftRows):
    """Rows of a sparse draft over the k tokens it names, then two entries of 0: all other tokens, and a token of them.

    In the target's row of this layout the entry k is the mass of all unnamed tokens together, as residuals scale them
    by one factor. A token that the draft does not name is at index k + 1, where both rows are 0.
    """

    def dense(self, row: int) -> Probs:
        return np.append(self._sent(row), [0.0, 0.0])

    def place(self, row: int, token_id: int) -> int:
        token_ids = self.token_ids(row)
        place = int(np.searchsorted(token_ids, token_id))
        return place if place < len(token_ids) and token_ids[place] == token_id else len(token_ids) + 1

    def token_ids(self, row: int) -> IntRow:
        assert isinstance(self._distribution, SparseDraft), "others name all tokens or none"
        return self._distribution.token_ids[self._index[row]]

    @property
    def rows(self) -> list[int]:
        return list(self._index)
