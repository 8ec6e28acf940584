"""Whom refusals fall on, by class: running shares of those that were refused among those decided about.

Where room comes in small pieces cheap promises find it and dear ones do not. So a class that was refused more often
than all together goes first, and what becomes free is kept for it.
"""

_WEIGHT = 0.02  # of the newest decision
_MARGIN = 0.02  # a class may be refused so much more often than all


class RefusalShares:
    """Lately, by class and of all."""

    def __init__(self) -> None:
        """Nobody was refused."""
        self._shares: dict[str, float] = {}
        self._all = 0.0

    def decided(self, slo_class: str, *, refused: bool) -> None:
        """One of a class was let in or refused."""
        before = self._shares.get(slo_class, 0.0)
        self._shares[slo_class] = before + _WEIGHT * (refused - before)
        self._all += _WEIGHT * (refused - self._all)

    def behind(self, slo_class: str) -> bool:
        """Whether a class was refused more often than its due."""
        return self._shares.get(slo_class, 0.0) > self._all + _MARGIN
