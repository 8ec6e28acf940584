"""Drawing several tokens from one row: what protocols have in common."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.exchanged import FloatRow
from outrider.sampling.distributions import Probs, draw, without


def siblings(probs: Probs, numbers: Sequence[float], *, distinct: bool) -> tuple[int, ...]:
    """One index per number; without replacement as long as there is anything left to draw."""
    drawn: list[int] = []
    for number in numbers:
        if distinct and drawn:
            probs = without(probs, drawn[-1])
            if not probs.any():
                break
        drawn.append(draw(probs, number))
    return tuple(drawn)


def best(scores: FloatRow, count: int) -> tuple[int, ...]:
    """The tokens with the largest scores, best first, lowest id first on ties; none that was removed."""
    if count == 1:
        return (int(scores.argmax()),)
    # A drafter may propose few of all tokens; so many equals are sorted slowly.
    possible = np.flatnonzero(scores > -np.inf)
    own = scores[possible]
    if count < own.size:
        among = own >= np.partition(own, own.size - count)[own.size - count]
        possible, own = possible[among], own[among]
    return tuple(possible[np.argsort(-own, kind="stable")[:count]].tolist())
