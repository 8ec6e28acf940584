"""Draw several tokens from one row, for all protocols."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.exchanged import FloatRow
from outrider.sampling.distributions import Probs, draw, without


def siblings(probs: Probs, numbers: Sequence[float], *, distinct: bool) -> tuple[int, ...]:
    """Draw one index per number; without replacement if ``distinct``, until nothing is left to draw."""
    drawn: list[int] = []
    for number in numbers:
        if distinct and drawn:
            probs = without(probs, drawn[-1])
            if not probs.any():
                break
        drawn.append(draw(probs, number))
    return tuple(drawn)


def best(scores: FloatRow, count: int) -> tuple[int, ...]:
    """Return the ``count`` largest scores' tokens, best first, lowest id first on ties; never a token of score -inf."""
    if count == 1:
        return (int(scores.argmax()),)
    # Partition first: most tokens may be at -inf, and so many equal scores sort slowly.
    possible = np.flatnonzero(scores > -np.inf)
    own = scores[possible]
    if count < own.size:
        among = own >= np.partition(own, own.size - count)[own.size - count]
        possible, own = possible[among], own[among]
    return tuple(possible[np.argsort(-own, kind="stable")[:count]].tolist())
