"""Keeps one device's calls while they wait for its replies, over whatever connection it has at present.

A device that dials again finds the calls that still wait. Each reply is read within the bound of its call, and once.
Numbers are low, and come again: those under 128 have short forms (``outrider.wire.short_forms``).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from actors.gateway_link import RelayOutcome
from outrider.contracts.errors import MessageError
from outrider.wire.calls import MOST_DEVICE_CALL_BYTES
from outrider.wire.dialling import FromGateway, NumberedCall, NumberedReply

MOST_WAITING = 256  # calls of one device
MOST_WAITING_BYTES = 2 * MOST_DEVICE_CALL_BYTES
STALE_S = 60.0  # a call that waits as long is asked for by nobody any more
_SHORT_NUMBERS, _NUMBERS = 2**7, 2 * MOST_WAITING

Answer = Callable[[RelayOutcome, bytes], None]
Send = Callable[[FromGateway], None]


@dataclass(slots=True)
class _RelayedCall:
    call: bytes
    most_bytes: int
    answer: Answer
    sent_at_s: float


@dataclass(slots=True)
class DeviceCounts:
    """What was exchanged with a device, since it joined this gateway."""

    calls: int = 0
    replies: int = 0
    connections: int = 0
    resent: int = 0  # calls, on a later connection


@dataclass(slots=True)
class DeviceCalls:
    """Calls of one process of a device. Pure: ``send`` is its connection's, None while it has none."""

    incarnation: int
    counts: DeviceCounts = field(default_factory=DeviceCounts)
    _waiting: dict[int, _RelayedCall] = field(default_factory=dict)  # by number, the oldest first
    _waiting_bytes: int = 0
    _number: int = 0  # the last that was given
    _send: Send | None = None

    def ask(self, call: bytes, most_bytes: int, answer: Answer, now_s: float) -> None:
        """Send a call, now or once the device is connected. ``answer`` is called once."""
        self._forget_stale(now_s)
        if len(self._waiting) >= MOST_WAITING or self._waiting_bytes + len(call) > MOST_WAITING_BYTES:
            answer(RelayOutcome.BUSY, b"")
            return
        numbers, number = _SHORT_NUMBERS if len(self._waiting) < _SHORT_NUMBERS else _NUMBERS, self._number
        while (number := (number + 1) % numbers) in self._waiting:
            pass
        self._number = number
        self._waiting[number] = _RelayedCall(call, most_bytes, answer, now_s)
        self._waiting_bytes += len(call)
        self.counts.calls += 1
        if self._send is not None:
            self._send(NumberedCall(number, call))

    def replied(self, message: NumberedReply) -> None:
        """Hand over a reply; a ``MessageError`` if it is of no call that waits, or longer than it may be."""
        waiting = self._waiting.get(message.number)
        if waiting is None:
            raise MessageError(f"needs replies of calls that wait, once each, found one of call {message.number}")
        self._drop(message.number)
        if len(message.reply) > waiting.most_bytes:
            fault = f"needs a reply of at most {waiting.most_bytes} bytes, found {len(message.reply)}; it was not read"
            waiting.answer(RelayOutcome.BROKEN, fault.encode())
            raise MessageError(fault)
        self.counts.replies += 1
        waiting.answer(RelayOutcome.REPLIED, message.reply)

    def connect(self, send: Send, now_s: float) -> None:
        """Use another connection, and send there what waits."""
        self._forget_stale(now_s)
        self._send = send
        self.counts.connections += 1
        self.counts.resent += len(self._waiting)
        for number, waiting in self._waiting.items():
            send(NumberedCall(number, waiting.call))

    def disconnect(self) -> None:
        self._send = None

    def end(self, outcome: RelayOutcome = RelayOutcome.ELSEWHERE, why: str = "") -> None:
        """Answer all that waits: the device is not here any more."""
        self._send = None
        for number in tuple(self._waiting):
            waiting = self._waiting[number]
            self._drop(number)
            waiting.answer(outcome, why.encode())

    def is_hoarding(self, now_s: float) -> bool:
        """Return whether it leaves calls unanswered for so long that none can wait any more."""
        return len(self._waiting) >= MOST_WAITING and now_s - next(iter(self._waiting.values())).sent_at_s > STALE_S

    def _forget_stale(self, now_s: float) -> None:
        """While it is connected its late replies are read; on another connection none comes of an earlier one."""
        if self._send is None:
            for number, waiting in tuple(self._waiting.items()):
                if now_s - waiting.sent_at_s > STALE_S:
                    self._drop(number)
                    waiting.answer(RelayOutcome.BUSY, b"")

    def _drop(self, number: int) -> None:
        self._waiting_bytes -= len(self._waiting.pop(number).call)
