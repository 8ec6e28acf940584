"""How far the prices are to be trusted: promises that were broken lower the limit of the load, kept ones raise it.

A cost model knows passes; what a coordinator, a link or a shared processor costs beside them shows in responses that
end late. With the steps below the limit settles where about one promise in ten is broken, and it is never raised above
what the operator allows.
"""

from dataclasses import dataclass

_LATE = 0.94  # a broken promise takes the limit to so much of it
_KEPT = 0.006  # a kept one gives so much back
_LEAST = 0.2
_PRESSED = 0.8  # of the limit: below that, what is kept says nothing of it


@dataclass(frozen=True, slots=True)
class Trust:
    """A factor of the limit, ``_LEAST`` to 1."""

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
