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


class Tally:
    """Exponentially forgotten counts ``[rules, DEPTHS]`` of tokens tested and accepted. Mutable."""

    def __init__(self, memory_tokens: float) -> None:
        """Begin empty. A weight falls to 1/e after ``memory_tokens`` more observations."""
        self._memory_tokens = memory_tokens
        self.seen = np.zeros((len(RULES), DEPTHS))
        self.accepted = np.zeros((len(RULES), DEPTHS))

    def observe(self, rule: AcceptanceRule, accepted_len: int, drafted: int) -> None:
        """Count a chain's verdict. More tokens accepted than drafted raise a ``ParameterError``."""
        if not 0 <= accepted_len <= drafted:
            raise ParameterError("accepted_len", f"a number in 0..{drafted}, the tokens drafted", accepted_len)
        self.observe_firsts(rule, [True] * accepted_len + [False] * (accepted_len < drafted))

    def observe_firsts(self, rule: AcceptanceRule, accepted: Sequence[bool]) -> None:
        """Count, for each position from the first, whether the only token or the first sibling was accepted."""
        row = TOKEN_ROW[rule_row(rule)]
        keep = np.exp(-len(accepted) / self._memory_tokens)
        self.seen *= keep  # all rules: statistics of a rule that is no longer used are forgotten too
        self.accepted *= keep
        for depth, one in enumerate(accepted):
            self.seen[row, min(depth, DEPTHS - 1)] += 1.0
            self.accepted[row, min(depth, DEPTHS - 1)] += one


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
