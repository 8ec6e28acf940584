"""Seal and open the envelope of every message: kind, round, and a checksum that covers the committed prefix.

    version 4 bits | kind 4 bits | low 8 bits of the round | body | checksum

The checksum is a CRC-16 for bodies under 4 KiB, as a round costs a few bytes and two more would matter, and a CRC-32
above. Before the message it covers a hash of the committed sequence, which both ends know and neither sends. So damage
and disagreement about the prefix are both detected.
"""

from binascii import crc32, crc_hqx
from dataclasses import dataclass
from enum import IntEnum

from outrider.contracts.errors import ChecksumError, MessageError
from outrider.versions import VERSIONS

MAX_MESSAGE_BYTES = 2**26
MAX_NODES = 127  # of one block
HEADER_BYTES = 2
_SHORT_BODY_BYTES = 4096
_ROUND_MASK = 0xFF


class MessageKind(IntEnum):
    ORDER = 0  # verdict relative to the drafter's last block
    ABSOLUTE_ORDER = 1  # verdict by position and tokens
    BLOCK = 2
    NEEDS_PREFIX = 3
    NEEDS_ROW = 4
    QUESTION = 5  # down: asks for more of the last block
    DETAILS = 6  # up: the answer to a question


@dataclass(frozen=True, slots=True)
class Envelope:
    """An opened envelope whose checksum is not verified yet."""

    version: int
    kind: MessageKind
    round_low: int
    body: bytes
    checksum: int


def round_low(number: int) -> int:
    """Return the part of a round's number that a message carries."""
    return number & _ROUND_MASK


def envelope_bits(body_bits: int) -> int:
    """Return the bits of a whole message: body, envelope and padding to whole bytes."""
    body_bytes = (body_bits + 7) // 8
    return (HEADER_BYTES + body_bytes + _checksum_bytes(body_bytes)) * 8


def seal(
    kind: MessageKind, number: int, body: bytes, prefix_hash: int, version: int = VERSIONS.messages.newest
) -> bytes:
    """Return a whole message; ``prefix_hash``: of the committed sequence that it assumes (``contracts.prefix``)."""
    content = bytes((version << 4 | kind, round_low(number))) + body
    size = _checksum_bytes(len(body))
    if len(content) + size > MAX_MESSAGE_BYTES:
        raise MessageError(
            f"needs a message of at most {MAX_MESSAGE_BYTES} bytes, found {len(content) + size}; draft fewer tokens"
        )
    return content + _checksum(content, prefix_hash, size).to_bytes(size, "big")


def unseal(data: bytes) -> Envelope:
    """Open a message. ``check`` verifies its checksum, once the prefix it assumes is known.

    One too short, too long, of another version or of an unknown kind is a ``MessageError``.
    """
    if not HEADER_BYTES + 2 <= len(data) <= MAX_MESSAGE_BYTES:
        raise MessageError(
            f"needs a message of {HEADER_BYTES + 2}..{MAX_MESSAGE_BYTES} bytes, found {len(data)}: it is truncated "
            "or oversized"
        )
    version, kind = divmod(data[0], 16)
    if not VERSIONS.messages.has(version):
        raise MessageError(
            f"needs messages of version {VERSIONS.messages}, found {version}; run the same release on both sides"
        )
    if kind >= len(MessageKind):
        raise MessageError(f"needs a message kind in 0..{len(MessageKind) - 1}, found {kind}")
    size = 2 if len(data) - HEADER_BYTES - 2 < _SHORT_BODY_BYTES else 4
    return Envelope(version, MessageKind(kind), data[1], data[HEADER_BYTES:-size], int.from_bytes(data[-size:], "big"))


def check(message: Envelope, prefix_hash: int) -> None:
    """Verify the checksum; a mismatch is a ``ChecksumError``."""
    content = bytes((message.version << 4 | message.kind, message.round_low)) + message.body
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
