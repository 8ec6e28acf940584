"""Whom refusals fall on, by class: running means over what was decided lately.

Where room comes in small pieces cheap promises find it and dear ones do not. So a class that was refused more often
than all together goes first, and what becomes free is kept for it.

Unless it was given as much of the verifier's time all the same: a fast promise makes passes short, and short passes are
constants for the most part. Were classes refused alike however dear they are, the dearest would take nearly all of the
time from the others. So what is compared beside refusals is the time given for each response that asked for it.
"""

from dataclasses import dataclass

_WEIGHT = 0.02  # of the newest decision
_MARGIN = 0.02  # a class may be refused so much more often than all
_AHEAD = 1.1  # times the time that all were given


@dataclass(frozen=True, slots=True)
class DecisionMeans:
    refused: float = 0.0  # share
    given: float = 0.0  # price of those let in, nothing of those refused
    decisions: int = 0

    def after(self, *, refused: bool, price: float) -> "DecisionMeans":
        weight = max(_WEIGHT, 1.0 / (self.decisions + 1))
        given = 0.0 if refused else price
        return DecisionMeans(
            self.refused + weight * (refused - self.refused),
            self.given + weight * (given - self.given),
            self.decisions + 1,
        )


_NONE = DecisionMeans()


class Fairness:
    """Lately, by class and of all."""

    def __init__(self) -> None:
        self._classes: dict[str, DecisionMeans] = {}
        self._all = _NONE

    def decided(self, slo_class: str, *, refused: bool, price: float) -> None:
        """One of a class was let in or refused; ``price``: time it takes, over that of its rows in endless passes."""
        self._classes[slo_class] = self._of(slo_class).after(refused=refused, price=price)
        self._all = self._all.after(refused=refused, price=price)

    def behind(self, slo_class: str) -> bool:
        """Whether a class was refused more often than its due."""
        one = self._of(slo_class)
        return one.refused > self._all.refused + _MARGIN and one.given < self._all.given

    def ahead(self, slo_class: str) -> bool:
        """Whether it was given more time than others."""
        return self._of(slo_class).given > _AHEAD * self._all.given

    def _of(self, slo_class: str) -> DecisionMeans:
        return self._classes.get(slo_class, _NONE)
