"""Measure how often classes are refused and how much verifier time they are given: running means over recent decisions.

A class refused more often than all together goes first, unless it was also given more verifier time for each response
that asked for it: that alone would give the most expensive class nearly all of the time (docs/design/0064).
"""

from dataclasses import dataclass

_WEIGHT = 0.02  # of the newest decision
_MARGIN = 0.02  # a class is behind if its share of refusals exceeds that of all by this
_AHEAD = 1.1  # times the time that all were given on average


@dataclass(frozen=True, slots=True)
class DecisionMeans:
    refused: float = 0.0  # share
    granted: float = 0.0  # time factor of those let in, 0 for those refused
    decisions: int = 0

    def after(self, *, refused: bool, time_factor: float) -> "DecisionMeans":
        weight = max(_WEIGHT, 1.0 / (self.decisions + 1))
        granted = 0.0 if refused else time_factor
        return DecisionMeans(
            self.refused + weight * (refused - self.refused),
            self.granted + weight * (granted - self.granted),
            self.decisions + 1,
        )


_NONE = DecisionMeans()


class Fairness:
    """Recent decisions, by class and of all classes."""

    def __init__(self) -> None:
        self._classes: dict[str, DecisionMeans] = {}
        self._all = _NONE

    def decided(self, slo_class: str, *, refused: bool, time_factor: float) -> None:
        """Count a decision. ``time_factor`` is the verifier time it takes over what its rows alone take."""
        self._classes[slo_class] = self._of(slo_class).after(refused=refused, time_factor=time_factor)
        self._all = self._all.after(refused=refused, time_factor=time_factor)

    def is_behind(self, slo_class: str) -> bool:
        """Return whether a class was refused more often and given less time than all."""
        one = self._of(slo_class)
        return one.refused > self._all.refused + _MARGIN and one.granted < self._all.granted

    def is_ahead(self, slo_class: str) -> bool:
        """Return whether a class was given clearly more time than all."""
        return self._of(slo_class).granted > _AHEAD * self._all.granted

    def _of(self, slo_class: str) -> DecisionMeans:
        return self._classes.get(slo_class, _NONE)
