"""What a coordinator and the fleet tell one another again and again: what has changed, since they last did."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.messages import CoordinatorReport, DrafterId, DrafterRow, DrafterStatus, FleetSettings, FleetStatus
from outrider.contracts.requests import GenerationId

FLEET_VERSION = 3  # of what is told here; raised when it changes
NewsMark = tuple[int, int]  # the fleet's own: up to where somebody was told, and where that began


class CoordinatorState(NamedTuple):
    """What coordinators know of one another. A tuple, as many of them may be told at once."""

    id: str
    verifier: str  # ready | restarting
    target: str  # which it is; "": not known yet


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A coordinator is alive, and its leases have changed like this.

    Attributes:
        report: what it does (``packed``). Only who wants to know reads it.
        session: of the coordinator's process.
        number: of this one within its session. What comes behind a later one is not taken in.
        held: leases that are new; None where it does not know yet who was leased to it.
        ended: names that hold nothing any more.
        since: the number of a heartbeat that was answered, since when this has changed; None: ``held`` is everything.
        settings: with everything only.
        settings_number: what a fleet has told of them last (``FleetNews``); None: none has.
        spare: of all that it holds, what no generation uses at present: places at hand for those to come.
        wanted: names for so many places more, to be at hand as well; as many are given as the fleet has to spare.
        known: of the fleet's news (``FleetNews.mark``); None: nothing.
    """

    state: CoordinatorState
    report: bytes
    session: int
    number: int
    held: Mapping[GenerationId, DrafterId | None]
    ended: tuple[GenerationId, ...] = ()
    since: int | None = None
    settings: FleetSettings | None = None
    settings_number: int | None = None
    spare: frozenset[GenerationId] = frozenset()
    wanted: tuple[GenerationId, ...] = ()
    known: NewsMark | None = None


@dataclass(frozen=True, slots=True)
class FleetNews:
    """The answer to a heartbeat.

    Attributes:
        mark: what is known of coordinators now, to be said by the next heartbeat.
        beat_s: when to beat again: longer where there are many coordinators.
        changed: coordinators that are new, or not as they were; some of them where they are many, the others follow.
        gone: those that have fallen silent.
        anew: whatever was known of coordinators before is to be forgotten first.
        tell_all: the fleet does not know what has changed; the next heartbeat is to say everything.
        most_spare: places that may be at hand; None: leases are asked for and given back one by one.
        places: those given of the ones that were wanted, each with its drafter and that one's handle.
        withdrawn: of spare places, those whose drafter may not be leased now.
        settings_number: of this coordinator's settings in the order in which they came (``settings_order``).
    """

    mark: NewsMark
    beat_s: float
    changed: tuple[CoordinatorState, ...] = ()
    gone: tuple[str, ...] = ()
    anew: bool = False
    tell_all: bool = False
    most_spare: int | None = None
    places: tuple[tuple[GenerationId, DrafterId, Any], ...] = ()
    withdrawn: tuple[GenerationId, ...] = ()
    settings_number: int | None = None


def state_of(report: CoordinatorReport) -> CoordinatorState:
    """What others are to know."""
    return CoordinatorState(report.id, report.verifier, report.target)


def packed(report: CoordinatorReport) -> bytes:
    """As it travels: the fleet keeps it, and hands it on to whoever asks."""
    return pickle.dumps(report, protocol=5)


def unpacked(report: bytes) -> CoordinatorReport:
    found: CoordinatorReport = pickle.loads(report)  # noqa: S301 (a coordinator's, as all that Ray brings from it)
    return found


class PackedStatus:
    """How things stand, as it travels: who asked for it reads it, and finds a ``FleetStatus``."""

    def __init__(self, drafters: Sequence[DrafterRow], reports: Sequence[bytes]) -> None:
        """``drafters``: the fields of each one's status."""
        self._drafters, self._reports = drafters, reports

    def read(self) -> FleetStatus:
        return _status_of(self._drafters, self._reports)

    def __reduce__(self) -> tuple[Any, ...]:
        return _status_of, (self._drafters, self._reports)


def _status_of(drafters: Sequence[DrafterRow], reports: Sequence[bytes]) -> FleetStatus:
    return FleetStatus(tuple(DrafterStatus(*row) for row in drafters), tuple(map(unpacked, reports)))
