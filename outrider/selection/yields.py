"""Expected number of committed tokens of a round."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul


def expected_tokens(acceptances: Sequence[float], *, bonus: bool = True) -> float:
    """Committed tokens of a round, correction or bonus token included: AAL.

    Args:
        acceptances: at each depth, the probability that the draft goes on being accepted: a chain's token acceptance,
            or that of one of a tree node's siblings. Equal ones give (1 - b^(K+1)) / (1 - b).
        bonus: whether a fully accepted draft is followed by a token of the target.

    Source: TSLT eq. 8, generalised to acceptances that differ from position to position.
    """
    survivals: list[float] = list(accumulate(acceptances, mul))
    complete = survivals[-1] if survivals else 1.0
    return sum(survivals) + (1.0 if bonus else 1.0 - complete)
