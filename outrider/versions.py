"""Versions of what coordinator and drafter must have in common: both know a range, and use the highest of both.

Raise ``newest`` when the meaning of a bit changes, and ``oldest`` when a version is no longer written and read.
"""

from dataclasses import dataclass
from typing import NamedTuple


class VersionRange(NamedTuple):
    oldest: int
    newest: int

    def __str__(self) -> str:
        """Return ``7``, or ``6..7``."""
        return str(self.newest) if self.oldest == self.newest else f"{self.oldest}..{self.newest}"

    def has(self, version: int) -> bool:
        return self.oldest <= version <= self.newest

    def common(self, other: "VersionRange") -> int | None:
        """Return the highest version of both ranges; None without one."""
        highest = min(self.newest, other.newest)
        return highest if highest >= max(self.oldest, other.oldest) else None


@dataclass(frozen=True, slots=True)
class Versions:
    protocol: VersionRange  # calls of a drafter, and its replies (``outrider.wire.calls``, ``replies``)
    messages: VersionRange  # orders and blocks (``outrider.wire.envelope``)
    noise: VersionRange  # bits of a key's noise: both draw with their newest, and otherwise agree by chance only

    def fault(self, other: "Versions") -> str | None:
        """Return what is needed and found of the first in which both sides have nothing in common; None: of nothing."""
        for what in ("protocol", "messages", "noise"):
            needed, found = getattr(self, what), getattr(other, what)
            if needed.common(found) is None or (what == "noise" and needed.newest != found.newest):
                return f"{what} version {needed}, found {found}"
        return None


# What was known before ranges were told: of drafters of protocol 6, and of what their release pickled.
MESSAGES_BEFORE_RANGES = VersionRange(2, 2)
# Since 7 of the protocol a drafter tells its ranges, and takes its calls as bytes, too.
VERSIONS = Versions(protocol=VersionRange(6, 7), messages=VersionRange(2, 2), noise=VersionRange(2, 2))
# Of what a device that dials in and its gateway say to each other (``outrider.wire.dialling``): since 2 a round's call
# and reply have short forms (``outrider.wire.short_forms``).
DIAL_VERSIONS = VersionRange(1, 2)
