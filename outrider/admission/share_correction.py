"""Correct prices by outcome: a broken promise lowers the share that its class leaves to rows, a kept one raises it.

A cost model predicts passes. What coordinator, link or a shared processor cost besides shows only in responses that end
late, in the fastest class first. So the correction is a class's own: it makes that class more expensive, and does not
limit slower ones while none of it is active. With these steps a class settles where about one promise in ten is broken.
A refusal gives a little back, so that a class which is only refused is tried again: what made it late may be over.
"""

from collections import defaultdict
from dataclasses import dataclass

_LATE = 0.94  # factor of the share for a broken promise
_KEPT = 0.006  # added for a kept one, about a tenth of a broken one's loss
_REFUSED = 0.001  # added for a refusal
_LEAST = 0.2
_PRESSED = 0.8  # of the limit: below that load, a kept promise proves nothing


@dataclass(frozen=True, slots=True)
class ShareCorrection:
    """Factor of the share that a class leaves to rows, ``_LEAST`` to 1."""

    share: float = 1.0

    def after(self, *, kept: bool, pressure: float) -> "ShareCorrection":
        """Return the factor after one more promise was kept or broken.

        ``pressure`` is the load over its limit: without load, a kept promise proves nothing, unless the share was
        lowered before.
        """
        if not kept:
            return ShareCorrection(max(_LEAST, self.share * _LATE))
        return ShareCorrection(min(1.0, self.share + _KEPT)) if pressure >= _PRESSED or self.share < 1.0 else self

    def after_refusal(self) -> "ShareCorrection":
        return ShareCorrection(min(1.0, self.share + _REFUSED))


class ShareCorrections:
    def __init__(self) -> None:
        self._corrections = defaultdict[str, ShareCorrection](ShareCorrection)

    def of(self, slo_class: str) -> float:
        return self._corrections[slo_class].share

    def ended(self, slo_class: str, *, kept: bool, pressure: float) -> None:
        self._corrections[slo_class] = self._corrections[slo_class].after(kept=kept, pressure=pressure)

    def refused(self, slo_class: str) -> None:
        self._corrections[slo_class] = self._corrections[slo_class].after_refusal()
