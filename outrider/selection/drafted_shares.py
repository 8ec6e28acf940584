"""Count, by position, the share of ordered draft tokens that devices with early stopping really draft.

A device that stops early (``outrider.drafting.stops``) leaves out tokens that it expects to be rejected, so the tokens
with a verdict are better than those left out. Acceptance statistics are of drafted tokens, hence correct; but a plan
yields less than its window suggests, by this share.

A position counts only if all tokens before it were drafted and accepted, so that its prefix is committed. Where a draft
ended behind a rejection depends on noise that may be used again.
"""

import numpy as np
import numpy.typing as npt

from outrider.selection.tallies import Forgotten, check_length

Floats = npt.NDArray[np.float64]

_PRIOR_ORDERED = 10.0  # weight of the prior, in orders that were drafted whole


class DraftedShares(Forgotten):
    """Counts of positions ordered, and of stops there."""

    def observe(self, row: int, accepted_len: int, drafted: int, ordered: int) -> None:
        """Learn from a chain of ``drafted`` tokens, verified or not; more accepted are a ``ParameterError``."""
        check_length(accepted_len, drafted)
        self.count(row, [False] * min(accepted_len + 1, drafted) + [True] * (accepted_len == drafted < ordered))

    def shares(self) -> Floats | None:
        """Return ``[rows, depths]``: P(drafted), given that all before it were drafted and accepted; None: always."""
        if not self.hits.any():
            return None
        shares: Floats = 1.0 - self.hits / (_PRIOR_ORDERED + self.seen)
        return shares
