"""When no verifier of a service was ready, so that no response could go on: its loads, by the word of its fleet."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.chaos.repeating import repeated
from tests.cluster.served import Service

_ASKED_EVERY_S = 0.25
_READY = "ready"


@dataclass(frozen=True, slots=True)
class Span:
    """From and until, by the clock that faults are timed by."""

    began_at_s: float
    ended_at_s: float

    def overlap_s(self, began_at_s: float, ended_at_s: float) -> float:
        """How much of another one lies in it."""
        return max(0.0, min(self.ended_at_s, ended_at_s) - max(self.began_at_s, began_at_s))


@dataclass
class Loads:
    """Asked again and again; a fleet that does not answer says nothing new, and it is late by a heartbeat."""

    spans: list[Span] = field(default_factory=list)
    _since_s: float | None = None

    def heard(self, at_s: float, ready: Sequence[bool]) -> None:
        """What is known of all verifiers; nothing of nobody."""
        if ready and not any(ready) and self._since_s is None:
            self._since_s = at_s
        elif any(ready):
            self.ends(at_s)

    def ends(self, at_s: float) -> None:
        """What is under way, if anything, is over or looked at no longer."""
        if self._since_s is not None:
            self.spans.append(Span(self._since_s, at_s))
            self._since_s = None


@contextmanager
def watched(service: Service) -> Iterator[Loads]:
    """Watch while the block is open; spans are complete behind it."""
    loads = Loads()

    def ask() -> None:
        reports = service.get("/status").get("coordinators", [])
        loads.heard(time.monotonic(), [report["verifier"] == _READY for report in reports])

    try:
        with repeated(_ASKED_EVERY_S, ask):
            yield loads
    finally:
        loads.ends(time.monotonic())
