"""Count tested and accepted tokens by rule and draft position, with exponential forgetting."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance_view import DEPTHS, RULES, rule_row

# The first sibling is the same draw with and without replacement: both rules share one row of token statistics.
TOKEN_ROW = np.array(
    [rule_row(AcceptanceRule.RATIO if rule is AcceptanceRule.RATIO_DISTINCT else rule) for rule in RULES]
)


class Forgotten:
    """Exponentially forgotten counts ``[rows, depths]`` of observations, and of hits among them. Mutable."""

    def __init__(self, rows: int, depths: int, memory: float) -> None:
        """Begin empty. A weight falls to 1/e after ``memory`` more observations; deeper ones count as the last."""
        self._memory = memory
        self.seen = np.zeros((rows, depths))
        self.hits = np.zeros((rows, depths))

    def count(self, row: int, hits: Sequence[bool]) -> None:
        """Count an observation at each depth from the first."""
        keep, last = np.exp(-len(hits) / self._memory), self.seen.shape[1] - 1
        self.seen *= keep  # all rows: statistics of a rule that is no longer used are forgotten too
        self.hits *= keep
        for depth, one in enumerate(hits):
            self.seen[row, min(depth, last)] += 1.0
            self.hits[row, min(depth, last)] += one


class Tally(Forgotten):
    """Counts by rule of tokens tested, and of those accepted."""

    def __init__(self, memory_tokens: float) -> None:
        super().__init__(len(RULES), DEPTHS, memory_tokens)

    def observe(self, rule: AcceptanceRule, accepted_len: int, drafted: int) -> None:
        """Count a chain's verdict. More tokens accepted than drafted raise a ``ParameterError``."""
        check_length(accepted_len, drafted)
        self.observe_firsts(rule, [True] * accepted_len + [False] * (accepted_len < drafted))

    def observe_firsts(self, rule: AcceptanceRule, accepted: Sequence[bool]) -> None:
        """Count, for each position from the first, whether the only token or the first sibling was accepted."""
        self.count(TOKEN_ROW[rule_row(rule)], accepted)


def check_length(accepted_len: int, drafted: int) -> None:
    if not 0 <= accepted_len <= drafted:
        raise ParameterError("accepted_len", f"a number in 0..{drafted}, the tokens drafted", accepted_len)


def check_path(siblings: Sequence[int], accepted: Sequence[int]) -> None:
    """Raise a ``ParameterError`` if the parts of a tree's verdict (``AcceptanceBook.observe_tree``) do not fit."""
    if not len(siblings) - 1 <= len(accepted) <= len(siblings):
        raise ParameterError("accepted", f"{len(siblings)} siblings, or one less", list(accepted))
    for offered, winner in zip(siblings, accepted, strict=False):
        if not 0 <= winner < offered:
            raise ParameterError("accepted", f"one of {offered} siblings, counted from 0", winner)


def first_siblings(siblings: Sequence[int], accepted: Sequence[int]) -> list[bool]:
    """Return, for each depth of a tree's verdict, whether the first sibling was accepted."""
    return [winner == 0 for winner in accepted] + [False] * (len(siblings) - len(accepted))
