"""Messages between a device that dials in and its gateway: one byte for the kind, then the content.

Calls and replies are numbered and carried as they are. The other kinds are JSON, of which a reader skips the fields
that it does not know, so that a release may add some. ``Hello`` is read in every version of these messages, and tells
the versions that the device knows. A reader trusts nothing: a message is bounded by its kind before it is read.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from outrider.contracts.errors import MessageError
from outrider.versions import VersionRange, Versions
from outrider.wire.calls import MOST_CALL_BYTES
from outrider.wire.replies import MOST_NAME_CHARS, answer_bytes

SUBPROTOCOL = "outrider.device.1"
DEVICE_PATH, FILES_PATH = "/v1/device", "/v1/files/"  # the second before a file's SHA-256 in hex
PROCESS_BYTES, DIGEST_BYTES = 8, 32
_NUMBER = struct.Struct(">I")
_TOLD_BYTES = 2**13  # of a message in JSON
_CARD_BYTES = 2**16  # of a card as a reply
_MOST_REASON_CHARS = 200
_MOST_NAME_CHARS, _MOST_RELEASE_CHARS, _MOST_ADDRESS_CHARS = 64, 32, 200
_MOST_LISTED = 16  # engines, addresses
_MOST_UINT, _MOST_LONG = 2**32 - 1, 2**63 - 1
_MOST_PERIOD_S = 3600.0
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z-]{1,63}(?:\.[0-9A-Za-z-]{1,63})*):([0-9]{1,5})")
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


class RefusalCode(StrEnum):
    """Why a gateway does not serve a device. Of the first four only a person can say that they are over."""

    UNKNOWN_IDENTITY = "unknown_identity"
    REVOKED = "revoked"
    VERSION = "version"
    UNFIT = "unfit"  # its drafter does not fit the target, or it broke the contract too often
    GROUP_FULL = "group_full"
    GROUP_CLOSED = "group_closed"
    TOO_MANY = "too_many"  # dials at once
    BUSY = "busy"
    REPLACED = "replaced"  # by a newer process of the same identity


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a device. The gateway compares ``process`` and ``dial`` with those of its last one."""

    dial_versions: VersionRange  # of these messages
    versions: Versions  # as its card has them
    release: str
    process: bytes  # 8 random bytes, made when the process starts
    dial: int  # 1 at the process's first dial, and one more with each
    name: str = ""  # that it asks for; a-z, 0-9 and hyphens
    engines: tuple[str, ...] = ("onnx",)  # that it has
    cached: bytes | None = None  # SHA-256 of a drafter's file
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Welcome:
    """The device may draft once it has loaded the file, which it then says by ``DeviceReady``."""

    version: int  # of these messages, from now on
    device: str  # its name in the cluster: group/index
    incarnation: int
    file: bytes  # SHA-256
    file_bytes: int
    ping_s: float  # the longest silence of a gateway
    grace_s: float  # after which a device that is gone is given up
    others: tuple[str, ...] = ()  # host:port of gateways that may be dialled instead


@dataclass(frozen=True, slots=True)
class Refused:
    """The gateway closes the connection behind it. ``reason`` is for people, and cut to 200 characters."""

    code: RefusalCode
    reason: str
    retry_after_s: int = 0  # 0: never, unless somebody changed something


@dataclass(frozen=True, slots=True)
class DeviceReady:
    card: bytes  # a reply (``outrider.wire.replies``)


@dataclass(frozen=True, slots=True)
class NumberedCall:
    """``number`` is the gateway's, whoever calls."""

    number: int
    call: bytes  # ``outrider.wire.calls``


@dataclass(frozen=True, slots=True)
class NumberedReply:
    number: int  # of its call
    reply: bytes  # ``outrider.wire.replies``


@dataclass(frozen=True, slots=True)
class MoveTo:
    """The device is to dial there, and to leave here when it is served there."""

    address: str  # host:port
    reason: str


@dataclass(frozen=True, slots=True)
class Bye:
    """The device stops. Of one that only moves the connection is closed."""


FromDevice = Hello | DeviceReady | NumberedReply | Bye
FromGateway = Welcome | Refused | NumberedCall | MoveTo


def is_name(text: str) -> bool:
    """Whether it may be a device's name."""
    return len(text) <= _MOST_NAME_CHARS and _NAME_CHARS.issuperset(text)


def is_address(text: str) -> bool:
    """Whether it is host:port, and short enough to be sent."""
    found = _ADDRESS.fullmatch(text) if len(text) <= _MOST_ADDRESS_CHARS else None
    return found is not None and 0 < int(found[1]) < 2**16


def write_dialled(message: FromDevice | FromGateway) -> bytes:
    """Return the bytes of a message; what its reader would refuse is a ``MessageError``."""
    kind = _KINDS.index(type(message))
    match message:
        case NumberedCall(number, content) | NumberedReply(number, content):
            if not 0 <= number <= _MOST_UINT:
                raise MessageError(f"needs a number of 32 bits, found {number}")
            data = bytes([kind]) + _NUMBER.pack(number) + content
        case DeviceReady(card):
            data = bytes([kind]) + card
        case Bye():
            data = bytes([kind])
        case _:
            values = {field.name: _plain(getattr(message, field.name)) for field in fields(message)}
            if "reason" in values:
                values["reason"] = _shown(values["reason"])
            data = bytes([kind]) + json.dumps(values).encode()
            _read(data, (type(message),))
    return _bounded(data, type(message))


def read_from_device(data: bytes) -> FromDevice:
    """Return the message; ``MessageError``: it is none that a device may send."""
    message: FromDevice = _read(data, (Hello, DeviceReady, NumberedReply, Bye))
    return message


def read_from_gateway(data: bytes) -> FromGateway:
    """Return the message; ``MessageError``: it is none that a gateway may send."""
    message: FromGateway = _read(data, (Welcome, Refused, NumberedCall, MoveTo))
    return message


def _read(data: bytes, kinds: tuple[type, ...]) -> Any:
    kind = _KINDS[data[0]] if data and data[0] < len(_KINDS) else None
    if kind is None or kind not in kinds:
        raise MessageError(f"needs one of {', '.join(each.__name__ for each in kinds)}, found {bytes(data[:16])!r}")
    content = bytes(memoryview(_bounded(data, kind))[1:])
    try:
        if kind in (NumberedCall, NumberedReply):
            numbered = NumberedCall if kind is NumberedCall else NumberedReply
            (number,) = _NUMBER.unpack_from(content)
            return numbered(number, content[_NUMBER.size :])
        if kind is DeviceReady:
            return DeviceReady(content)
        if kind is Bye:
            return Bye()
        values = json.loads(content)
        return kind(**{name: read(values[name]) for name, read in _READERS[kind].items()})
    except (AttributeError, KeyError, ValueError, TypeError, struct.error, RecursionError) as error:
        raise MessageError(f"needs a {kind.__name__}: {error!r:.200}") from None


def _bounded(data: bytes, kind: type) -> bytes:
    if len(data) > (most := _MOST_BYTES[kind]):
        raise MessageError(f"needs a {kind.__name__} of at most {most} bytes, found {len(data)}; it was not read")
    return data


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Versions):
        return asdict(value)
    return value


def _is(value: object, type_: type, fits: bool) -> Any:
    if type(value) is not type_ or not fits:
        raise ValueError(f"found {value!r:.60}")
    return value


def _text(most: int) -> Callable[[Any], str]:
    """Return a reader of a text that may be shown in a terminal."""
    return lambda value: str(_is(value, str, len(value) <= most and value.isprintable()))


def _name(value: Any) -> str:
    return str(_is(value, str, is_name(value)))


def _shown(value: Any) -> str:
    return "".join(char if char.isprintable() else " " for char in _is(value, str, fits=True)[:_MOST_REASON_CHARS])


def _address(value: Any) -> str:
    return str(_is(value, str, is_address(value)))


def _uint(most: int) -> Callable[[Any], int]:
    return lambda value: int(_is(value, int, 0 <= value <= most))


def _period(value: Any) -> float:
    return float(_is(value, type(value), 0.0 < value <= _MOST_PERIOD_S))


def _digits(size: int) -> Callable[[Any], bytes]:
    return lambda value: bytes(_is(found := bytes.fromhex(value), bytes, len(found) == size))


def _cached(value: Any) -> bytes | None:
    return None if value is None else _digits(DIGEST_BYTES)(value)


def _list(read: Callable[[Any], str]) -> Callable[[Any], tuple[str, ...]]:
    return lambda value: tuple(map(read, _is(value, list, len(value) <= _MOST_LISTED)))


def _range(value: Any) -> VersionRange:
    return VersionRange(*map(_uint(_MOST_UINT), _is(value, list, len(value) == 2)))


def _versions(value: Mapping[str, Any]) -> Versions:
    return Versions(*(_range(value[field.name]) for field in fields(Versions)))


_KINDS: tuple[type, ...] = (
    Hello,
    Welcome,
    Refused,
    DeviceReady,
    NumberedCall,
    NumberedReply,
    MoveTo,
    Bye,
)  # add at the end
_MOST_BYTES: dict[type, int] = {
    **dict.fromkeys(_KINDS, _TOLD_BYTES),
    DeviceReady: 1 + _CARD_BYTES,
    NumberedCall: 1 + _NUMBER.size + MOST_CALL_BYTES,
    NumberedReply: 1 + _NUMBER.size + answer_bytes(MOST_CALL_BYTES),
    Bye: 1,
}
_READERS: dict[type, dict[str, Callable[[Any], Any]]] = {
    Hello: {
        "dial_versions": _range,
        "versions": _versions,
        "release": _text(_MOST_RELEASE_CHARS),
        "process": _digits(PROCESS_BYTES),
        "dial": _uint(_MOST_UINT),
        "name": _name,
        "engines": _list(_name),
        "cached": _cached,
        "threads": _uint(_MOST_UINT),
    },
    Welcome: {
        "version": _uint(_MOST_UINT),
        "device": _text(MOST_NAME_CHARS),
        "incarnation": _uint(_MOST_LONG),
        "file": _digits(DIGEST_BYTES),
        "file_bytes": _uint(_MOST_LONG),
        "ping_s": _period,
        "grace_s": _period,
        "others": _list(_address),
    },
    Refused: {"code": RefusalCode, "reason": _shown, "retry_after_s": _uint(_MOST_UINT)},
    MoveTo: {"address": _address, "reason": _shown},
}
