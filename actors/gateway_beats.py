"""Defines what gateways and the fleet say to each other: which devices have dialled in, and which may stay."""

from dataclasses import dataclass, field
from enum import StrEnum

from actors.messages import DrafterId
from actors.proved_streams import StreamPlace
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.gateway import GatewayConfig
from outrider.wire.dialling import Refused

GRACE_S = 10.0  # for which a device that is gone may come back to its leases


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    config: GatewayConfig
    groups: tuple[DrafterGroupConfig, ...]  # whose devices dial in
    target: str


@dataclass(frozen=True, slots=True)
class DeviceDial:
    """A device that asks to be let in."""

    device: str  # its name, unique in the cluster
    identity: str  # whom its certificate or key names
    process: bytes
    dial: int


@dataclass(frozen=True, slots=True)
class DeviceAdmission:
    drafter: DrafterId
    incarnation: int
    others: tuple[str, ...] = ()  # addresses of gateways


class DeviceStage(StrEnum):
    LOADING = "loading"  # connected, and not ready to draft
    READY = "ready"
    AWAY = "away"  # its connection was lost
    GONE = "gone"  # it said so, or was away for longer than the grace


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device as its gateway sees it."""

    dial: DeviceDial
    drafter: DrafterId
    incarnation: int
    stage: DeviceStage
    breach: str | None = None  # how it broke the contract since it was told last
    sent_bytes: int = 0  # to the device since it joined, as the kernel counts packets
    received_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GatewayBeat:
    """A gateway's sign of life.

    Attributes:
        session: random number of its process.
        rows: devices that have changed; all where the fleet asked for everything.
        refused: dials that were refused since its start, by code.
        takes_devices: whether it has the drafters' files, and is not draining.
    """

    gateway: str  # actor name
    session: int
    place: StreamPlace
    address: str  # host:port that devices dial
    rows: tuple[DeviceRow, ...] = ()
    everything: bool = False
    refused: dict[str, int] = field(default_factory=dict)
    connections: int = 0
    takes_devices: bool = True


@dataclass(frozen=True, slots=True)
class GatewayNews:
    tell_all: bool = False  # the fleet lacks what was told before
    ended: tuple[
        tuple[int, Refused | None], ...
    ] = ()  # incarnations that are not this gateway's, and what they are told
