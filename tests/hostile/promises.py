"""What one key, device or file may cost others, in numbers. SECURITY.md repeats it, as a test checks. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Family(StrEnum):
    """What a case is hostile with."""

    BODIES = "bodies"
    FIELDS = "fields"
    GRAMMARS = "grammars"
    HEADERS = "headers"
    CONNECTIONS = "connections"
    READS = "reads"
    FLOODS = "floods"
    DEVICES = "devices"
    DIALS = "dials"
    FILES = "files"
    KEYLESS = "keyless"


class Figure(StrEnum):
    """What is measured of a case; the unit is part of the name."""

    REFUSED_S = "refused_s"  # from the first byte sent to the answer, if it is no 2xx
    LOOP_S = "loop_s"  # longest wait of /health
    SILENCE_S = "silence_s"  # longest silence of a stream of another key, beyond what it has undisturbed
    FIRST_TOKEN_S = "first_token_s"  # noqa: S105 (no password)  # the longest of another key's
    BROKEN = "broken"  # responses of another key that failed, broke or were refused
    INGRESS_CPU_S = "ingress_cpu_s"  # processor time, less what it uses by itself in that time
    INGRESS_MIB = "ingress_mib"  # peak growth of memory
    COORDINATOR_MIB = "coordinator_mib"
    FLEET_MIB = "fleet_mib"
    GATEWAY_MIB = "gateway_mib"
    FLEET_S = "fleet_s"  # longest wait of /status
    REVOKED_S = "revoked_s"  # from a sound keys file to the first 401 of a key that is not in it
    LOST = "lost"  # processes of the service that ended


@dataclass(frozen=True, slots=True)
class Promise:
    """A bound on a figure.

    Attributes:
        what: for people, as SECURITY.md has it.
        bound: of a machine that has nothing else to do.
        busy_bound: where other work runs beside, as in CI.
    """

    what: str
    figure: Figure
    bound: float
    busy_bound: float
    families: frozenset[Family]

    def most(self, *, busy: bool) -> float:
        """The bound that holds."""
        return self.busy_bound if busy else self.bound

    @property
    def unit(self) -> str:
        """``s``, ``MiB`` or nothing."""
        return {"s": "s", "mib": "MiB"}.get(self.figure.rpartition("_")[2], "")

    @property
    def text(self) -> str:
        """The bound with its unit."""
        return f"{self.bound:g} {self.unit}".strip()


_REQUESTS = frozenset({Family.BODIES, Family.FIELDS, Family.GRAMMARS, Family.HEADERS})
_ONE_BODY = frozenset({Family.BODIES, Family.FIELDS, Family.HEADERS})
_ALL = frozenset(Family)
# Who has many requests made takes half of the machine, which streams of others feel.
_MANY = frozenset({Family.CONNECTIONS, Family.FLOODS, Family.KEYLESS})
_SMOOTH = _ALL - _MANY
PROMISES: tuple[Promise, ...] = (
    Promise("until a request that is refused is answered", Figure.REFUSED_S, 2.0, 6.0, _REQUESTS),
    Promise("silence of an ingress's event loop", Figure.LOOP_S, 0.5, 1.0, _ALL),
    Promise("more silence of another key's stream, unless by many requests", Figure.SILENCE_S, 0.5, 1.5, _SMOOTH),
    Promise("more silence of another key's stream, by many requests", Figure.SILENCE_S, 2.0, 6.0, _MANY),
    Promise("until another key's first token", Figure.FIRST_TOKEN_S, 5.0, 15.0, _ALL),
    Promise("processor time of an ingress, by a request", Figure.INGRESS_CPU_S, 0.5, 0.75, _REQUESTS),
    Promise("responses of another key that fail", Figure.BROKEN, 0, 0, _ALL),
    Promise("processes that end", Figure.LOST, 0, 0, _ALL - {Family.DEVICES}),
    Promise("memory of an ingress, by a body", Figure.INGRESS_MIB, 50, 50, _ONE_BODY),
    Promise("memory of an ingress, by a grammar", Figure.INGRESS_MIB, 20, 20, frozenset({Family.GRAMMARS})),
    Promise(
        "memory of an ingress, by connections or a flood",
        Figure.INGRESS_MIB,
        200,
        200,
        frozenset({Family.CONNECTIONS, Family.FLOODS, Family.READS, Family.KEYLESS}),
    ),
    Promise("memory of a coordinator", Figure.COORDINATOR_MIB, 100, 100, _ALL),
    Promise("memory of the fleet, by a device's replies", Figure.FLEET_MIB, 50, 50, _ALL),
    Promise("memory of a gateway, by whoever dials in", Figure.GATEWAY_MIB, 150, 150, frozenset({Family.DIALS})),
    Promise("silence of the fleet, by a device's replies", Figure.FLEET_S, 0.5, 2.0, frozenset({Family.DEVICES})),
    Promise(
        "beyond a reading of the keys, until a revoked key opens nothing",
        Figure.REVOKED_S,
        2.0,
        4.0,
        frozenset({Family.FILES, Family.DIALS}),
    ),
)


def broken_promises(family: Family, figures: Mapping[Figure, float], *, busy: bool) -> tuple[Promise, ...]:
    """The promises that a case's figures do not keep; a figure that was not measured breaks none."""
    return tuple(
        promise
        for promise in PROMISES
        if family in promise.families and figures.get(promise.figure, 0.0) > promise.most(busy=busy)
    )


TIMES = frozenset(
    {Figure.REFUSED_S, Figure.LOOP_S, Figure.SILENCE_S, Figure.FIRST_TOKEN_S, Figure.FLEET_S, Figure.INGRESS_CPU_S}
)
HEADINGS: Mapping[Figure, str] = MappingProxyType(
    {
        Figure.REFUSED_S: "refused in, s",
        Figure.LOOP_S: "loop, s",
        Figure.SILENCE_S: "silence, s",
        Figure.FIRST_TOKEN_S: "first token, s",
        Figure.BROKEN: "failed",
        Figure.INGRESS_CPU_S: "ingress CPU, s",
        Figure.INGRESS_MIB: "ingress, MiB",
        Figure.COORDINATOR_MIB: "coordinator, MiB",
        Figure.FLEET_MIB: "fleet, MiB",
        Figure.GATEWAY_MIB: "gateway, MiB",
        Figure.FLEET_S: "fleet, s",
        Figure.REVOKED_S: "revoked, s",
        Figure.LOST: "ended",
    }
)
