"""Correct prices by outcome: a broken promise lowers the share that its class leaves to rows, a kept one raises it.

A cost model predicts passes. What coordinator, link or a shared processor cost besides shows only in responses that end
late, in the fastest class first. So the correction is a class's own: it makes that class more expensive, and does not
limit slower ones while none of it is active. With these steps a class settles where about one promise in ten is broken.
A refusal gives a little back, so that a class which is only refused is tried again: what made it late may be over.
"""

_LATE = 0.94  # factor of the share for a broken promise
_KEPT = 0.006  # added for a kept one, about a tenth of a broken one's loss
_REFUSED = 0.001  # added for a refusal
_LEAST = 0.2
_PRESSED = 0.8  # of the limit: below that load, a kept promise proves nothing


class ShareCorrections:
    """Factor of the share that each class leaves to rows, ``_LEAST`` to 1. Mutable."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}

    def of(self, slo_class: str) -> float:
        return self._factors.get(slo_class, 1.0)

    def ended(self, slo_class: str, *, kept: bool, pressure: float) -> None:
        """Learn from a promise kept or broken.

        ``pressure`` is the load over its limit: without load, a kept promise proves nothing, unless the share was
        lowered before.
        """
        factor = self.of(slo_class)
        if not kept:
            self._factors[slo_class] = max(_LEAST, factor * _LATE)
        elif pressure >= _PRESSED or factor < 1.0:
            self._factors[slo_class] = min(1.0, factor + _KEPT)

    def refused(self, slo_class: str) -> None:
        self._factors[slo_class] = min(1.0, self.of(slo_class) + _REFUSED)
