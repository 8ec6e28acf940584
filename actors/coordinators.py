"""What the fleet knows of coordinators: who is alive, what each holds by its own word, and what to tell others of it.

Pure. Neither a heartbeat nor its answer takes time that grows with how many coordinators there are: changes of who is
there are kept in the order in which they came, and each coordinator is told those behind the last one that it knows.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from actors.heartbeats import CoordinatorState, Heartbeat, NewsMark
from actors.messages import DrafterId
from outrider.contracts.requests import GenerationId

_MOST_CHANGES = 128  # changes, by one answer
_STALE = 2  # times as many changes kept as there are coordinators, and those that were overtaken are dropped
_KEPT = 256  # changes, in any case

Held = Mapping[GenerationId, DrafterId | None]


@dataclass(frozen=True, slots=True)
class CoordinatorHoldings:
    """All that a coordinator says it holds, and of which names that is new; None: perhaps of all."""

    held: Held
    changed: Collection[GenerationId] | None


@dataclass(slots=True)
class _CoordinatorRecord:
    state: CoordinatorState
    session: int
    heard_at_s: float
    report: bytes = b""
    number: int = -1  # of the last heartbeat that was taken in
    held: dict[GenerationId, DrafterId | None] | None = None  # None: it has yet to tell


@dataclass(frozen=True, slots=True)
class CoordinatorNews:
    """What one coordinator is to be told of all; the fields are those of ``FleetNews``."""

    mark: NewsMark
    changed: tuple[CoordinatorState, ...]
    gone: tuple[str, ...]
    anew: bool


class Coordinators:
    """Those that have beaten within ``ttl_s`` seconds."""

    def __init__(self, ttl_s: float, first: int) -> None:
        """Nobody; changes are numbered from ``first`` on, which is no other fleet's."""
        self._ttl_s = ttl_s
        self._known: dict[str, _CoordinatorRecord] = {}  # the longest silent first
        self._first = self._last = first
        self._forgotten = first  # the last change that is not kept, of somebody who is gone
        self._changes: list[tuple[int, str]] = []  # numbers and names
        self._changed: dict[str, int] = {}  # the last change of each name, gone or not

    def __len__(self) -> int:
        """How many there are."""
        return len(self._known)

    def hear(self, beat: Heartbeat, now_s: float) -> CoordinatorHoldings | None:
        """Take in a heartbeat; returns what its coordinator says it holds, None if it has to tell everything first."""
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
        """Whoever has not beaten for long is gone."""
        while self._known:
            name, known = next(iter(self._known.items()))
            if now_s - known.heard_at_s < self._ttl_s:
                break
            del self._known[name]
            self._note(name)

    def news(self, known: NewsMark | None) -> CoordinatorNews:
        """Changes behind those that are known, the oldest first, so many at once.

        Who begins is told how things stand, not what was before: what was forgotten then does not matter to it.
        """
        began, last = known or (-1, -1)
        anew = not self._first <= last <= self._last or max(began, last) < self._forgotten
        if anew:
            began, last = self._last, self._first
        place = bisect_right(self._changes, last, key=itemgetter(0))
        some = self._changes[place : place + _MOST_CHANGES]
        names = [name for number, name in some if self._changed.get(name) == number]
        return CoordinatorNews(
            mark=(began, some[-1][0] if some else self._last),
            changed=tuple(self._known[name].state for name in names if name in self._known),
            gone=tuple(name for name in names if name not in self._known),
            anew=anew,
        )

    def reports(self) -> Iterable[bytes]:
        """Of all, by name, packed as they came."""
        return (self._known[name].report for name in sorted(self._known))

    def _note(self, name: str) -> None:
        self._last += 1
        self._changes.append((self._last, name))
        self._changed[name] = self._last
        if len(self._changes) > _STALE * len(self._known) + _KEPT:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Whoever knows nothing behind somebody's going that is dropped here has to begin anew."""
        kept = list[tuple[int, str]]()
        spared = len(self._changes) - _KEPT // 2
        for place, (number, name) in enumerate(self._changes):
            if self._changed.get(name) != number:
                continue
            if name in self._known or place >= spared:
                kept.append((number, name))
            else:
                del self._changed[name]
                self._forgotten = number
        self._changes = kept


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
