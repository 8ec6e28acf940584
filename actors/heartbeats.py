"""Defines heartbeats from coordinators to the fleet and their answers; both carry changes since the last exchange."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.messages import (
    CoordinatorReport,
    DrafterId,
    DrafterRow,
    DrafterStatus,
    FleetSettings,
    FleetStatus,
    GatewayStatus,
)
from outrider.contracts.requests import GenerationId

FLEET_VERSION = 6  # of these messages and those of gateways; raise it when they change
NewsMark = tuple[int, int]  # of the fleet: numbers at which a coordinator began, and of the last news it has


class CoordinatorState(NamedTuple):
    """A coordinator as its peers see it. A tuple, as an answer may carry many of them."""

    id: str
    verifier: str  # ready | restarting
    target: str  # ``ModelCard.target``; "": not known yet


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A coordinator's sign of life, with the changes of its leases.

    Attributes:
        since: number of the answered heartbeat to which the changes refer; None: ``held`` is everything.
    """

    state: CoordinatorState
    report: bytes  # its ``CoordinatorReport``, packed; the fleet does not decode it
    session: int  # random number of the coordinator's process
    number: int  # of this heartbeat within its session. One that arrives after a later one is ignored.
    held: Mapping[GenerationId, DrafterId | None]  # new leases; None as drafter: the fleet's answer has not arrived yet
    ended: tuple[GenerationId, ...] = ()  # names that hold no lease any more
    since: int | None = None
    settings: FleetSettings | None = None  # sent with everything only
    settings_number: int | None = None  # number that a fleet has given to the settings (``FleetNews``); None: none has
    spare: frozenset[GenerationId] = frozenset()  # names in ``held``, now or earlier, that are spare slots
    wanted: tuple[GenerationId, ...] = ()  # names for more spare slots; the fleet grants as many as it can spare
    known: NewsMark | None = None  # ``FleetNews.mark`` of the last news received; None: none.


@dataclass(frozen=True, slots=True)
class FleetNews:
    """The answer to a heartbeat.

    Attributes:
        changed: coordinators that are new or have changed; at most 128, the others follow with the next answers.
        places: granted spare slots, each with its drafter and the drafter's handle.
        settings_number: number of this coordinator's settings in the order of arrival (``settings_order``).
    """

    mark: NewsMark  # position in the news of coordinators, to be sent back with the next heartbeat
    beat_s: float = 0.1  # seconds until the next heartbeat; by default that of one that has to carry everything
    changed: tuple[CoordinatorState, ...] = ()
    gone: tuple[str, ...] = ()  # coordinators that have fallen silent
    anew: bool = False  # earlier news of coordinators must be dropped first
    tell_all: bool = False  # the fleet lacks earlier changes; the next heartbeat must carry everything
    most_spare: int | None = None  # most spare slots to hold; None: leases are asked for and given back one by one
    places: tuple[tuple[GenerationId, DrafterId, Any], ...] = ()
    withdrawn: tuple[GenerationId, ...] = ()  # spare slots whose drafter may not be leased now
    settings_number: int | None = None


def state_of(report: CoordinatorReport) -> CoordinatorState:
    """Return the part of a report that other coordinators need."""
    return CoordinatorState(report.id, report.verifier, report.target)


def packed(report: CoordinatorReport) -> bytes:
    """Pickle a report: the fleet keeps the bytes and passes them on, and only the reader decodes them."""
    return pickle.dumps(report, protocol=5)


def unpacked(report: bytes) -> CoordinatorReport:
    found: CoordinatorReport = pickle.loads(report)  # noqa: S301 (a coordinator's, as all that Ray brings from it)
    return found


class PackedStatus:
    """A ``FleetStatus`` in packed form: unpickling it, in the reader's process, gives a ``FleetStatus``."""

    def __init__(
        self, drafters: Sequence[DrafterRow], reports: Sequence[bytes], gateways: tuple[GatewayStatus, ...] = ()
    ) -> None:
        self._parts = drafters, reports, gateways

    def read(self) -> FleetStatus:
        return _status_of(*self._parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _status_of, self._parts


def _status_of(
    drafters: Sequence[DrafterRow], reports: Sequence[bytes], gateways: tuple[GatewayStatus, ...]
) -> FleetStatus:
    return FleetStatus(tuple(DrafterStatus(*row) for row in drafters), tuple(map(unpacked, reports)), gateways)
