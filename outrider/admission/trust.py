"""How far prices are to be trusted: broken promises lower what their class leaves to rows, kept ones raise it.

A cost model knows passes; what a coordinator, a link or a shared processor costs beside them shows in responses that
end late. It shows in the fastest first, and makes those dearer: what slower ones may need while none of these is made
is none of it. With the steps below a class settles where about one promise in ten of it is broken. One that is only
refused any more is tried again after some time, as what made it late may be over.
"""

from collections import defaultdict
from dataclasses import dataclass

_LATE = 0.94  # a broken promise takes the share to so much of it
_KEPT = 0.006  # a kept one gives so much back
_REFUSED = 0.001  # and a refusal so much
_LEAST = 0.2
_PRESSED = 0.8  # of the limit: below that, what is kept says nothing of it


@dataclass(frozen=True, slots=True)
class Trust:
    """A factor of the share that a class leaves to rows, ``_LEAST`` to 1."""

    share: float = 1.0

    def after(self, *, kept: bool, pressure: float) -> "Trust":
        """With one more promise kept or broken.

        Args:
            kept: whether it was.
            pressure: the load over its limit: a promise that is kept while there is none teaches nothing.
        """
        if not kept:
            return Trust(max(_LEAST, self.share * _LATE))
        return Trust(min(1.0, self.share + _KEPT)) if pressure >= _PRESSED or self.share < 1.0 else self

    def after_refusal(self) -> "Trust":
        return Trust(min(1.0, self.share + _REFUSED))


class Trusts:
    def __init__(self) -> None:
        self._trusts = defaultdict[str, Trust](Trust)

    def of(self, slo_class: str) -> float:
        return self._trusts[slo_class].share

    def ended(self, slo_class: str, *, kept: bool, pressure: float) -> None:
        self._trusts[slo_class] = self._trusts[slo_class].after(kept=kept, pressure=pressure)

    def refused(self, slo_class: str) -> None:
        self._trusts[slo_class] = self._trusts[slo_class].after_refusal()
