"""A device that was let in: its calls, and the connection that it has at present."""

from dataclasses import dataclass, field
from typing import Protocol

from actors.gateway.device_calls import DeviceCalls
from actors.gateway.identities import DeviceIdentity
from actors.gateway_beats import DeviceDial, DeviceRow, DeviceStage
from actors.messages import DrafterId
from actors.tcp_counts import Carried
from outrider.wire.dialling import FromGateway


class Connection(Protocol):
    def send(self, message: FromGateway) -> None: ...

    def close(self, last: FromGateway | None = None) -> None:
        """Send a last message, if there is one, and close."""
        ...

    def carried(self) -> Carried:
        """Return what the connection has carried so far."""
        ...


@dataclass(slots=True, eq=False)
class JoinedDevice:
    dial: DeviceDial
    identity: DeviceIdentity
    drafter: DrafterId
    calls: DeviceCalls
    connection: Connection | None = None
    is_ready: bool = False  # on this connection
    left_at_s: float | None = None  # None: it is connected
    breach: str | None = None  # to be told to the fleet
    _counted_calls: int = 0  # when the fleet was told last
    _carried: Carried = field(default_factory=Carried)  # by earlier connections

    @property
    def incarnation(self) -> int:
        return self.calls.incarnation

    @property
    def stage(self) -> DeviceStage:
        if self.connection is None:
            return DeviceStage.AWAY
        return DeviceStage.READY if self.is_ready else DeviceStage.LOADING

    def take(self, connection: Connection, dial: DeviceDial, identity: DeviceIdentity) -> None:
        """Use a newer connection; the one before is closed without a word."""
        before = self.connection
        self._disconnect()
        self.dial, self.identity, self.connection, self.left_at_s = dial, identity, connection, None
        if before is not None:
            before.close()

    def ready(self, now_s: float) -> None:
        assert self.connection is not None, "a message came on it"
        self.is_ready = True
        self.calls.connect(self.connection.send, now_s)

    def lost(self, connection: Connection, now_s: float) -> bool:
        """Note that a connection has ended; return whether it was the present one."""
        if connection is not self.connection:
            return False
        self._disconnect()
        self.left_at_s = now_s
        return True

    @property
    def has_news(self) -> bool:
        """Return whether it was called since the fleet was told last what it has carried."""
        return self.calls.counts.calls != self._counted_calls

    def row(self, stage: DeviceStage | None = None) -> DeviceRow:
        """Return what the fleet is told, once: a breach is not told again."""
        breach, self.breach, self._counted_calls = self.breach, None, self.calls.counts.calls
        now = self._carried if self.connection is None else self._carried + self.connection.carried()
        return DeviceRow(
            self.dial,
            self.drafter,
            self.incarnation,
            stage or self.stage,
            breach,
            sent_bytes=now.sent_bytes,
            received_bytes=now.received_bytes,
        )

    def _disconnect(self) -> None:
        if self.connection is not None:
            self._carried += self.connection.carried()
        self.connection, self.is_ready = None, False
        self.calls.disconnect()
