"""Whom refusals fall on, by class: running shares of those that were refused among those decided about.

Where room comes in small pieces cheap promises find it and dear ones do not. So a class that was refused more often
than all together goes first, and what becomes free is kept for it.
"""

from dataclasses import dataclass

_WEIGHT = 0.02  # of the newest decision
_MARGIN = 0.02  # a class may be refused so much more often than all


@dataclass(frozen=True, slots=True)
class RefusedShare:
    """Of decisions."""

    share: float = 0.0
    decisions: int = 0

    def after(self, *, refused: bool) -> "RefusedShare":
        """With one more."""
        weight = max(_WEIGHT, 1.0 / (self.decisions + 1))
        return RefusedShare(self.share + weight * (refused - self.share), self.decisions + 1)


_NONE = RefusedShare()


class RefusalShares:
    """Lately, by class and of all."""

    def __init__(self) -> None:
        """Nobody was refused."""
        self._classes: dict[str, RefusedShare] = {}
        self._all = _NONE

    def decided(self, slo_class: str, *, refused: bool) -> None:
        """One of a class was let in or refused."""
        self._classes[slo_class] = self._classes.get(slo_class, _NONE).after(refused=refused)
        self._all = self._all.after(refused=refused)

    def behind(self, slo_class: str) -> bool:
        """Whether a class was refused more often than its due."""
        return self._classes.get(slo_class, _NONE).share > self._all.share + _MARGIN
