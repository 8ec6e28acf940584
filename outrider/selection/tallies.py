"""Counts of tested and accepted tokens by draft position, with exponential forgetting."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.selection.acceptance_view import DEPTHS, RULES, rule_row

# Without replacement or with it, the first sibling is the same draw: one row of token statistics for both.
TOKEN_ROW = np.array(
    [rule_row(AcceptanceRule.RATIO if rule is AcceptanceRule.RATIO_DISTINCT else rule) for rule in RULES]
)


class Tally:
    """Forgetful counts ``[rules, DEPTHS]`` of tokens tested and accepted."""

    def __init__(self, memory_tokens: float) -> None:
        """``memory_tokens``: an observation's weight falls to 1/e after so many more."""
        self._memory_tokens = memory_tokens
        self.seen = np.zeros((len(RULES), DEPTHS))
        self.accepted = np.zeros((len(RULES), DEPTHS))

    def observe(self, rule: AcceptanceRule, accepted_len: int, drafted: int) -> None:
        """A chain's verdict; more tokens accepted than drafted are a ``ParameterError``."""
        if not 0 <= accepted_len <= drafted:
            raise ParameterError("accepted_len", f"a number in 0..{drafted}, the tokens drafted", accepted_len)
        self.observe_firsts(rule, [True] * accepted_len + [False] * (accepted_len < drafted))

    def observe_firsts(self, rule: AcceptanceRule, accepted: Sequence[bool]) -> None:
        """Position by position: whether the only token, or the first sibling, was accepted."""
        row = TOKEN_ROW[rule_row(rule)]
        keep = np.exp(-len(accepted) / self._memory_tokens)
        self.seen *= keep  # of other rules too: what is no longer seen grows old
        self.accepted *= keep
        for depth, one in enumerate(accepted):
            self.seen[row, min(depth, DEPTHS - 1)] += 1.0
            self.accepted[row, min(depth, DEPTHS - 1)] += one


def check_path(siblings: Sequence[int], accepted: Sequence[int]) -> None:
    """Refuse a tree's verdict (as ``AcceptanceBook.observe_tree``) whose halves do not fit; a ``ParameterError``."""
    if not len(siblings) - 1 <= len(accepted) <= len(siblings):
        raise ParameterError("accepted", f"{len(siblings)} siblings, or one less", list(accepted))
    for offered, winner in zip(siblings, accepted, strict=False):
        if not 0 <= winner < offered:
            raise ParameterError("accepted", f"one of {offered} siblings, counted from 0", winner)


def first_siblings(siblings: Sequence[int], accepted: Sequence[int]) -> list[bool]:
    """Of a tree's verdict, depth by depth: whether the first sibling was accepted."""
    return [winner == 0 for winner in accepted] + [False] * (len(siblings) - len(accepted))
