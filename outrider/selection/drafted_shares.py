"""Count, by position, the share of ordered draft tokens that devices with early stopping really draft.

A device that stops early (``outrider.drafting.stops``) leaves out tokens that it expects to be rejected, so the tokens
with a verdict are better than those left out. Acceptance statistics are of drafted tokens, hence correct; but a plan
yields less than its window suggests, by this share.

A position counts only if all tokens before it were drafted and accepted, so that its prefix is committed. Where a draft
ended behind a rejection depends on noise that may be used again.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError

Floats = npt.NDArray[np.float64]

_PRIOR_ORDERED = 10.0  # weight of the prior, in orders that were drafted whole


class DraftedShares:
    """Exponentially forgotten counts ``[rows, depths]`` of positions ordered, and of stops there. Mutable."""

    def __init__(self, rows: int, depths: int, memory: float) -> None:
        """Begin empty. A weight falls to 1/e after ``memory`` positions; deeper positions count as the last."""
        self._memory = memory
        self._ordered = np.zeros((rows, depths))
        self._stopped = np.zeros((rows, depths))

    def observe(self, row: int, accepted_len: int, drafted: int, ordered: int) -> None:
        """Learn from a chain.

        ``drafted`` counts the tokens that the device drafted, verified or not.

        Raises:
            ParameterError: more tokens accepted than drafted.
        """
        if not 0 <= accepted_len <= drafted:
            raise ParameterError("accepted_len", f"a number in 0..{drafted}, the tokens drafted", accepted_len)
        self._count(row, [False] * min(accepted_len + 1, drafted) + [True] * (accepted_len == drafted < ordered))

    def _count(self, row: int, stopped: Sequence[bool]) -> None:
        """Count, for each position from the first, whether the device stopped there."""
        keep, last = np.exp(-len(stopped) / self._memory), self._ordered.shape[1] - 1
        self._ordered *= keep
        self._stopped *= keep
        for depth, one in enumerate(stopped):
            self._ordered[row, min(depth, last)] += 1.0
            self._stopped[row, min(depth, last)] += one

    def shares(self) -> Floats | None:
        """Return ``[rows, depths]``: P(drafted), given that all before it were drafted and accepted; None: always."""
        if not self._stopped.any():
            return None
        shares: Floats = 1.0 - self._stopped / (_PRIOR_ORDERED + self._ordered)
        return shares
