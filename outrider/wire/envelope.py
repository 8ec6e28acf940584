"""The envelope of every message: what it is, which round, and a checksum that also names the committed prefix.

    version 4 bits | kind 4 bits | low 8 bits of the round | body | checksum

The checksum is a CRC-16 for bodies under 4 KiB (a round costs a few bytes, so two more would show) and a CRC-32 above.
It covers, before the message, a hash of the committed sequence that both ends know and neither sends: damage and
disagreement about the prefix are caught alike.
"""

from binascii import crc32, crc_hqx
from dataclasses import dataclass
from enum import IntEnum

from outrider.contracts.errors import ChecksumError, MessageError

VERSION = 2  # raised whenever the meaning of a bit changes
MAX_MESSAGE_BYTES = 2**26
MAX_NODES = 127  # of one block
HEADER_BYTES = 2
_SHORT_BODY_BYTES = 4096
_ROUND_MASK = 0xFF


class MessageKind(IntEnum):
    """What a message is."""

    ORDER = 0  # verdict told relative to the drafter's last block
    ABSOLUTE_ORDER = 1  # verdict told by position and tokens
    BLOCK = 2
    NEEDS_PREFIX = 3
    NEEDS_ROW = 4
    QUESTION = 5  # down: more is needed of the last block
    DETAILS = 6  # up: that


@dataclass(frozen=True, slots=True)
class Envelope:
    """An envelope that was opened, its checksum not yet compared."""

    kind: MessageKind
    round_low: int
    body: bytes
    checksum: int


def round_low(number: int) -> int:
    """What a message carries of a round's number."""
    return number & _ROUND_MASK


def envelope_bits(body_bits: int) -> int:
    """Bits of a whole message: body, envelope and padding to whole bytes."""
    body_bytes = (body_bits + 7) // 8
    return (HEADER_BYTES + body_bytes + _checksum_bytes(body_bytes)) * 8


def seal(kind: MessageKind, number: int, body: bytes, prefix_hash: int) -> bytes:
    """A whole message.

    Args:
        kind: of the message.
        number: the round's.
        body: whole bytes.
        prefix_hash: of the committed sequence the message assumes (``outrider.contracts.prefix``).
    """
    content = bytes((VERSION << 4 | kind, round_low(number))) + body
    size = _checksum_bytes(len(body))
    if len(content) + size > MAX_MESSAGE_BYTES:
        raise MessageError(
            f"needs a message of at most {MAX_MESSAGE_BYTES} bytes, found {len(content) + size}; draft fewer tokens"
        )
    return content + _checksum(content, prefix_hash, size).to_bytes(size, "big")


def unseal(data: bytes) -> Envelope:
    """Take a message apart. Its checksum is compared by ``check``, once the prefix it assumes is known.

    Raises:
        MessageError: too short, too long, of another version or of an unknown kind.
    """
    if not HEADER_BYTES + 2 <= len(data) <= MAX_MESSAGE_BYTES:
        raise MessageError(
            f"needs a message of {HEADER_BYTES + 2}..{MAX_MESSAGE_BYTES} bytes, found {len(data)}: it is truncated "
            "or oversized"
        )
    version, kind = divmod(data[0], 16)
    if version != VERSION:
        raise MessageError(f"needs messages of version {VERSION}, found {version}; run the same release on both sides")
    if kind >= len(MessageKind):
        raise MessageError(f"needs a message kind in 0..{len(MessageKind) - 1}, found {kind}")
    size = 2 if len(data) - HEADER_BYTES - 2 < _SHORT_BODY_BYTES else 4
    return Envelope(MessageKind(kind), data[1], data[HEADER_BYTES:-size], int.from_bytes(data[-size:], "big"))


def check(message: Envelope, prefix_hash: int) -> None:
    """Compare the checksum; one that does not fit is a ``ChecksumError``."""
    content = bytes((VERSION << 4 | message.kind, message.round_low)) + message.body
    if _checksum(content, prefix_hash, _checksum_bytes(len(message.body))) != message.checksum:
        raise ChecksumError(
            f"the checksum of message {message.kind.name} of round {message.round_low} does not fit: it was damaged, "
            "or the two sides disagree about the committed tokens; open the generation again"
        )


def _checksum_bytes(body_bytes: int) -> int:
    return 2 if body_bytes < _SHORT_BODY_BYTES else 4


def _checksum(content: bytes, prefix_hash: int, size: int) -> int:
    assumed = prefix_hash.to_bytes(8, "big")
    if size == 2:
        return crc_hqx(content, crc_hqx(assumed, 0xFFFF))
    return crc32(content, crc32(assumed))
