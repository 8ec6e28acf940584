"""The share of ordered draft tokens that devices really draft, by position: a stop rule ends drafts early.

A device that stops (``outrider.drafting.stops``) leaves out what it thinks would be rejected, so the tokens of which
verdicts tell are better than those it left out. That is no error of their acceptance, which is that of tokens that
*were* drafted; but a plan brings less than its window promises, and this share says by how much.

Only what verdicts tell is counted: a position counts where all before it were drafted and accepted, so that what stands
before it is committed. Where a draft ended behind a rejection depends on noise that may be used again.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError

Floats = npt.NDArray[np.float64]

_PRIOR_ORDERED = 10.0  # orders that were carried out whole


class DraftedShares:
    """Forgetful counts ``[rows, depths]`` of positions that orders reached, and of those drafted. Mutable."""

    def __init__(self, rows: int, depths: int, memory: float) -> None:
        """A position's weight falls to 1/e after ``memory`` more; deeper ones count as the last."""
        self._memory = memory
        self._ordered = np.zeros((rows, depths))
        self._stopped = np.zeros((rows, depths))

    def observe(self, row: int, accepted_len: int, drafted: int, ordered: int) -> None:
        """Learn from a chain.

        Args:
            row: its rule's.
            accepted_len: tokens at its front that were accepted.
            drafted: tokens that the device drafted, verified or not.
            ordered: tokens that it was asked for.

        Raises:
            ParameterError: more tokens accepted than drafted.
        """
        if not 0 <= accepted_len <= drafted:
            raise ParameterError("accepted_len", f"a number in 0..{drafted}, the tokens drafted", accepted_len)
        self._count(row, [False] * min(accepted_len + 1, drafted) + [True] * (accepted_len == drafted < ordered))

    def _count(self, row: int, stopped: Sequence[bool]) -> None:
        """Position by position, whether the device stopped there."""
        keep, last = np.exp(-len(stopped) / self._memory), self._ordered.shape[1] - 1
        self._ordered *= keep
        self._stopped *= keep
        for depth, one in enumerate(stopped):
            self._ordered[row, min(depth, last)] += 1.0
            self._stopped[row, min(depth, last)] += one

    def shares(self) -> Floats | None:
        """``[rows, depths]``: a token is drafted, given that those before it were, and accepted. None: all are."""
        if not self._stopped.any():
            return None
        shares: Floats = 1.0 - self._stopped / (_PRIOR_ORDERED + self._ordered)
        return shares
