"""Which devices are with this gateway: who is let in, away, and given up. Connections and the fleet are ports."""

import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from actors.gateway.device_calls import Answer, DeviceCalls
from actors.gateway.identities import DeviceIdentity
from actors.gateway.joined_device import Connection, JoinedDevice
from actors.gateway_beats import GRACE_S, DeviceAdmission, DeviceDial, DeviceRow, DeviceStage
from actors.gateway_link import RelayOutcome
from outrider.contracts.errors import FleetUnavailableError
from outrider.events import event
from outrider.wire.dialling import MoveTo, RefusalCode, Refused

_RETRY_S = 2  # while the fleet does not answer

log = logging.getLogger(__name__)


class AdmittingFleet(Protocol):
    async def admit(self, dial: DeviceDial) -> DeviceAdmission | Refused:
        """Ask whether a device may come in; a ``FleetUnavailableError`` if there is no answer in time."""
        ...


class JoinedDevices:
    def __init__(self, fleet: AdmittingFleet, changed: Callable[[], None], clock: Callable[[], float]) -> None:
        """``changed`` is called when the fleet should be told something soon; ``clock`` is monotonic, in seconds."""
        self._fleet, self._changed, self._clock = fleet, changed, clock
        self._joined: dict[int, JoinedDevice] = {}  # by incarnation
        self._untold: dict[int, JoinedDevice] = {}  # that have changed since the fleet was told
        self._gone: list[DeviceRow] = []  # likewise, and left
        self.refused = Counter[RefusalCode]()

    def __len__(self) -> int:
        return len(self._joined)

    def ask(self, incarnation: int, call: bytes, most_bytes: int, answer: Answer) -> None:
        """Have a device answer a coordinator's call."""
        joined = self._joined.get(incarnation)
        if joined is None:
            answer(RelayOutcome.ELSEWHERE, b"")
        else:
            joined.calls.ask(call, most_bytes, answer, self._clock())

    async def admit(self, dial: DeviceDial, identity: DeviceIdentity) -> DeviceAdmission | Refused:
        """Ask the fleet; while it does not answer, a process that is here already may go on."""
        try:
            return await self._fleet.admit(dial)
        except FleetUnavailableError as error:
            known = next((one for one in self._joined.values() if one.dial.device == dial.device), None)
            if known is None or known.dial.process != dial.process or known.identity.name != identity.name:
                return Refused(RefusalCode.BUSY, f"the fleet does not answer: {error}", _RETRY_S)
            return DeviceAdmission(known.drafter, known.incarnation)

    def join(
        self, admission: DeviceAdmission, dial: DeviceDial, identity: DeviceIdentity, connection: Connection
    ) -> JoinedDevice | None:
        """Enter a device that was let in; None: a later dial of it was entered meanwhile."""
        joined = self._joined.get(admission.incarnation)
        if joined is None:
            joined = JoinedDevice(dial, identity, admission.drafter, DeviceCalls(admission.incarnation))
            self._joined[admission.incarnation] = joined
        elif dial.dial < joined.dial.dial:
            return None
        joined.take(connection, dial, identity)
        self._tell(joined)
        return joined

    def ready(self, joined: JoinedDevice) -> None:
        joined.ready(self._clock())
        self._tell(joined)
        self._changed()

    def lost(self, joined: JoinedDevice, connection: Connection, breach: str | None = None) -> None:
        """Note that a connection has ended; ``breach`` is how the device broke the contract."""
        if breach is not None:
            event(log, "device_broke_contract", logging.WARNING, drafter=joined.drafter.actor_name, reason=breach)
            joined.breach = breach
        if joined.lost(connection, self._clock()):
            self._tell(joined)
        if breach is not None:
            self._changed()

    def goodbye(self, joined: JoinedDevice, connection: Connection) -> None:
        """Give up a device that said that it goes, unless it has come back by another connection."""
        if joined.connection is connection:
            self._forget(joined, is_untold=True)
            self._changed()

    def end(self, incarnation: int, last: Refused | None) -> None:
        """Turn a device away that is not to be here any more; None: it has moved, and is told nothing."""
        joined = self._joined.get(incarnation)
        if joined is None:
            return
        connection = joined.connection
        self._forget(joined, is_untold=False, why="" if last is None else last.reason)
        if connection is not None:
            connection.close(last)

    def revoke(self, is_revoked: Callable[[DeviceIdentity], bool]) -> None:
        """Turn away whoever may not be here any more."""
        for joined in tuple(self._joined.values()):
            if is_revoked(joined.identity):
                event(log, "device_revoked", logging.WARNING, drafter=joined.drafter.actor_name)
                self.end(joined.incarnation, Refused(RefusalCode.REVOKED, "your certificate or key is not valid now"))
                self._gone.append(joined.row(DeviceStage.GONE))
                self._changed()

    def prove_anew(self, has_to: Callable[[DeviceIdentity], bool]) -> None:
        """Have devices dial again: who they are was proved by a CA that may not be believed any more."""
        for joined in tuple(self._joined.values()):
            if (connection := joined.connection) is not None and has_to(joined.identity):
                self.lost(joined, connection)
                connection.close(Refused(RefusalCode.BUSY, "certificates have changed; prove again who you are", 1))

    def move(self, addresses: Sequence[str], reason: str) -> None:
        """Ask all devices to dial other gateways, each one of these."""
        for joined in self._joined.values():
            if joined.connection is not None:
                joined.connection.send(MoveTo(random.choice(addresses), reason))  # noqa: S311 (no secret)

    def sweep(self) -> None:
        """Give up devices that were away for too long, and cut off those that do not answer."""
        now_s = self._clock()
        for joined in tuple(self._joined.values()):
            if joined.left_at_s is not None and now_s - joined.left_at_s > GRACE_S:
                self._forget(joined, is_untold=True)
            elif joined.connection is not None and joined.calls.is_hoarding(now_s):
                joined.breach = "leaves calls unanswered"
                joined.connection.close()
                joined.calls.end(RelayOutcome.BROKEN, joined.breach)

    def rows(self, *, everything: bool, counts: bool = False) -> tuple[DeviceRow, ...]:
        """Return what has changed since the last call, or all devices; with ``counts`` those that were called, too.

        If the fleet was not told, it needs everything the next time.
        """
        some: Mapping[int, JoinedDevice] = self._joined if everything else self._untold
        if counts and not everything:
            some = {**some, **{name: joined for name, joined in self._joined.items() if joined.has_news}}
        rows = (*self._gone, *(joined.row() for joined in some.values()))
        self._gone.clear()
        self._untold.clear()
        return rows

    def _tell(self, joined: JoinedDevice) -> None:
        self._untold[joined.incarnation] = joined

    def _forget(self, joined: JoinedDevice, *, is_untold: bool, why: str = "") -> None:
        self._joined.pop(joined.incarnation, None)
        self._untold.pop(joined.incarnation, None)
        if is_untold:
            self._gone.append(joined.row(DeviceStage.GONE))
        joined.calls.end(RelayOutcome.ELSEWHERE, why)
        joined.connection, joined.is_ready = None, False  # a reply that is still read is no breach
