"""Tracks live coordinators for the fleet: what each holds by its heartbeats, and news of the others for each. Pure.

The time of a heartbeat's answer grows with what has changed since the last one, not with the number of coordinators:
their last changes are numbered and kept in order, and each coordinator receives those after the last one that it knows.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from actors.heartbeats import CoordinatorState, FleetNews, Heartbeat, NewsMark
from actors.messages import DrafterId
from outrider.contracts.requests import GenerationId

_MOST_CHANGES = 128  # changes in one answer
_MOST_GONE = 256  # coordinators that are gone, of which the log still tells

Held = Mapping[GenerationId, DrafterId | None]


@dataclass(frozen=True, slots=True)
class CoordinatorHoldings:
    """A coordinator's leases by its heartbeats, and the names that have changed; None: perhaps all have."""

    held: Held
    changed: Collection[GenerationId] | None


@dataclass(slots=True)
class _CoordinatorRecord:
    state: CoordinatorState
    session: int
    heard_at_s: float
    report: bytes = b""
    number: int = -1  # of the newest heartbeat so far
    held: dict[GenerationId, DrafterId | None] | None = None  # None: not known, a complete heartbeat is needed


class Coordinators:
    """Coordinators whose last heartbeat is less than ``ttl_s`` seconds old."""

    def __init__(self, ttl_s: float, first: int) -> None:
        """Start empty; number changes from ``first``, a random number, so that marks of another fleet do not fit."""
        self._ttl_s = ttl_s
        self._known: dict[str, _CoordinatorRecord] = {}  # the longest silent first
        self._first = self._last = first
        self._forgotten = first  # number of the last dropped change that said that a coordinator is gone
        self._changed: dict[str, int] = {}  # number of each name's last change, gone or not; the newest last

    def __len__(self) -> int:
        return len(self._known)

    def hear(self, beat: Heartbeat, now_s: float) -> CoordinatorHoldings | None:
        """Take in a heartbeat; return the coordinator's leases, or None if it must send everything first."""
        name = beat.state.id
        known, before = self._known.pop(name, None), None
        if known is not None:
            before = known.state
        if known is None or known.session != beat.session:
            known = _CoordinatorRecord(beat.state, beat.session, now_s)
        self._known[name] = known
        known.heard_at_s = now_s
        changed: Collection[GenerationId] | None = ()
        if beat.number >= known.number:
            _take_in(known, beat)
            changed = None if beat.since is None else (*beat.held, *beat.ended)
        if known.state != before:
            self._note(name)
        return None if known.held is None else CoordinatorHoldings(known.held, changed)

    def forget_silent(self, now_s: float) -> None:
        """Drop coordinators without a heartbeat for ``ttl_s``, and log that they are gone."""
        while self._known:
            name, known = next(iter(self._known.items()))
            if now_s - known.heard_at_s < self._ttl_s:
                break
            del self._known[name]
            self._note(name)

    def news(self, known: NewsMark | None) -> FleetNews:
        """Return an answer with at most 128 changes after the mark ``known``, oldest first.

        A coordinator without a valid mark begins anew from the present state, so that earlier dropped changes do not
        matter to it.
        """
        began, last = known or (-1, -1)
        anew = not self._first <= last <= self._last or max(began, last) < self._forgotten
        if anew:
            began, last = self._last, self._first
        newer = list(takewhile(lambda change: change[1] > last, reversed(self._changed.items())))
        names = [name for name, _ in newer[: -_MOST_CHANGES - 1 : -1]]
        return FleetNews(
            mark=(began, self._changed[names[-1]] if names else self._last),
            changed=tuple(self._known[name].state for name in names if name in self._known),
            gone=tuple(name for name in names if name not in self._known),
            anew=anew,
        )

    def reports(self) -> Iterable[bytes]:
        return (self._known[name].report for name in sorted(self._known))

    def _note(self, name: str) -> None:
        self._last += 1
        self._changed.pop(name, None)
        self._changed[name] = self._last
        if len(self._changed) > len(self._known) + _MOST_GONE:
            # Drop the older half: a coordinator whose mark is before a dropped departure has to begin anew.
            gone = [each for each in self._changed if each not in self._known]
            for each in gone[: _MOST_GONE // 2]:
                self._forgotten = self._changed.pop(each)


def _take_in(known: _CoordinatorRecord, beat: Heartbeat) -> None:
    known.state, known.report = beat.state, beat.report
    if beat.since is None:
        known.held = dict(beat.held)
    elif known.held is not None and beat.since <= known.number:
        known.held.update(beat.held)
        for name in beat.ended:
            known.held.pop(name, None)
    else:
        known.held = None
    known.number = beat.number
