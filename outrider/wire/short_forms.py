"""Short forms of a round's call and reply on one connection of a device, since version 2 of its messages.

    call:  1 | number 7 bits | place 8 bits    | order    of an exchange whose head is at that place
    reply: 1 | number 7 bits | seconds 16 bits | answer   with a float of half precision

A call's head is what comes before its order: version, method, and the generation's name, 47 bytes as a rule. Both ends
keep the heads of exchanges that were told in long form on the connection, the last 64, at the same places: each that
is not there yet takes the next one. The first bit tells short forms from kinds (``outrider.wire.dialling``).
"""

import struct

from outrider.contracts.errors import MessageError
from outrider.wire.calls import exchange_head
from outrider.wire.dialling import FromDevice, FromGateway, NumberedCall, NumberedReply
from outrider.wire.dialling import read_from_device as read_long_from_device
from outrider.wire.dialling import read_from_gateway as read_long_from_gateway
from outrider.wire.dialling import write_dialled as write_long
from outrider.wire.replies import ANSWER, SECONDS

FIRST_SHORT_VERSION = 2
PLACES = 64
_SHORT, _MOST_NUMBER = 0x80, 0x7F
_ANSWER, _ANSWER_HEAD_BYTES = bytes([ANSWER]), 1 + SECONDS.size
_HALF = struct.Struct(">e")
_REPLY_HEAD_BYTES = 1 + _HALF.size
_CALL_HEAD_BYTES = 2


class CallHeads:
    """One end of a connection, of which the gateway writes calls and the device reads them."""

    def __init__(self) -> None:
        self._heads, self._places, self._next = list[bytes](), dict[bytes, int](), 0

    def write(self, message: FromGateway) -> bytes:
        if not isinstance(message, NumberedCall) or (head := exchange_head(message.call)) is None:
            return write_long(message)
        place = self._places.get(head)
        if place is None:
            self._keep(head)
        elif message.number <= _MOST_NUMBER:
            return bytes((_SHORT | message.number, place)) + message.call[len(head) :]
        return write_long(message)

    def read(self, data: bytes) -> FromGateway:
        """Return the message; ``MessageError``: it is none that a gateway may send."""
        if data and data[0] & _SHORT:
            if len(data) < _CALL_HEAD_BYTES or data[1] >= len(self._heads):
                raise MessageError(f"needs a call at one of {len(self._heads)} places, found {bytes(data[:16])!r}")
            return NumberedCall(data[0] & _MOST_NUMBER, self._heads[data[1]] + data[_CALL_HEAD_BYTES:])
        message = read_long_from_gateway(data)
        head = exchange_head(message.call) if isinstance(message, NumberedCall) else None
        if head is not None and head not in self._places:
            self._keep(head)
        return message

    def _keep(self, head: bytes) -> None:
        if len(self._heads) < PLACES:
            self._heads.append(head)
        else:
            del self._places[self._heads[self._next]]
            self._heads[self._next] = head
        self._places[head] = self._next
        self._next = (self._next + 1) % PLACES


def write_reply(message: NumberedReply) -> bytes:
    """Return a device's reply: in short form, if it has one."""
    reply = message.reply
    if message.number > _MOST_NUMBER or reply[:1] != _ANSWER or len(reply) < _ANSWER_HEAD_BYTES:
        return write_long(message)
    (seconds,) = SECONDS.unpack_from(reply, 1)
    try:
        half = _HALF.pack(seconds)
        if _HALF.unpack(half)[0] > seconds:  # what is left of a round is the link's: never less than it took
            half = (int.from_bytes(half, "big") - 1).to_bytes(_HALF.size, "big")
        return bytes((_SHORT | message.number,)) + half + reply[_ANSWER_HEAD_BYTES:]
    except OverflowError:  # a day
        return write_long(message)


def read_from_device(data: bytes) -> FromDevice:
    """Return a device's message; ``MessageError``: it is none that a device may send."""
    if not (data and data[0] & _SHORT):
        return read_long_from_device(data)
    if len(data) < _REPLY_HEAD_BYTES:
        raise MessageError(f"needs the seconds of a reply, found {bytes(data)!r}")
    (seconds,) = _HALF.unpack_from(data, 1)
    return NumberedReply(data[0] & _MOST_NUMBER, _ANSWER + SECONDS.pack(seconds) + data[_REPLY_HEAD_BYTES:])
