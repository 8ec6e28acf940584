"""Expected number of committed tokens of a round, from acceptance by depth."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul


def expected_tokens(acceptances: Sequence[float], *, bonus: bool = True) -> float:
    """Return a round's expected committed tokens, correction or bonus token included: vLLM's mean acceptance length.

    Args:
        acceptances: at each depth, P(accepted) given acceptance up to there: of a chain's token, or of one of a tree
            node's siblings. Equal ones give (1 - b^(K+1)) / (1 - b).
        bonus: whether the target's own token follows a draft that was accepted whole.

    Source: TSLT eq. 8, generalised to acceptances that differ from position to position.
    """
    survivals: list[float] = list(accumulate(acceptances, mul))
    complete = survivals[-1] if survivals else 1.0
    return sum(survivals) + (1.0 if bonus else 1.0 - complete)
