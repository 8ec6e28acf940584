"""Encodes drafters' replies as plain bytes: numbers, names and text, so that reading one runs no code of a device.

Ray pickles what actors return and unpickles it wherever it arrives; replies of a device are encoded here instead. A
reply is one byte for its kind, then its content. A reply that is larger than its kind may be is not read, and names and
numbers in it are bounded by what an honest device can have.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from outrider.contracts.errors import ContextTooLongError, DrafterBrokenError, DraftingFailedError
from outrider.contracts.requests import GenerationId
from outrider.versions import MESSAGES_BEFORE_RANGES, VERSIONS, VersionRange, Versions
from outrider.wire.envelope import MAX_MESSAGE_BYTES

_NOTHING, ANSWER, _CARD, _HOLDING, _TOO_LONG, _FAILED, _NOT_THIS = range(7)
SECONDS = struct.Struct("<d")
_SENT = struct.Struct("<QQ")  # segments, and those sent again
_MOST_REASON_CHARS = 200
MOST_NAME_CHARS = 200  # of a generation, a model, a hash
_MOST_ENDS = 1024  # tokens that end a sequence
_MOST_NUMBER = 2**63
_ANSWER_HEAD_BYTES = 1 + SECONDS.size
_LISTED_BYTES = 2**16  # of a card or a list of names
_BARE_BYTES = 2**12  # of nothing, or of why a call failed
_USUAL_NAME_BYTES = 128


@dataclass(frozen=True, slots=True)
class DrafterCard:
    """A drafter's model and versions, which must agree with the target's (``actors.fleet.handshake``)."""

    name: str
    model_hash: str
    token_map_hash: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_context_tokens: int
    versions: Versions = VERSIONS


@dataclass(frozen=True, slots=True)
class Answer:
    """A drafter's message (``outrider.wire``) and the seconds it worked on it; the rest of the call is link time.

    ``data`` is empty if the drafter does not hold the generation.
    """

    data: bytes
    drafter_s: float


class SentSegments(NamedTuple):
    """Number of TCP segments with data, and of those among them that were sent again."""

    segments: int = 0
    resent: int = 0


class DrafterHoldings(NamedTuple):
    """A drafter's report of what it holds. A tuple, as it is sent over the device's uplink.

    Attributes:
        segments: TCP segments with data that it has sent to its callers since its start, ``resent`` of them again.
    """

    generations: tuple[GenerationId, ...]  # in its memory
    segments: int = 0
    resent: int = 0


Reply = Answer | DrafterCard | DrafterHoldings | None


class UnreadableReplyError(DrafterBrokenError):
    """A reply has another form than its kind, or is too large."""


def reply_bytes(method: str) -> int:
    """Return the size of the largest reply of a method that is read, in bytes; a caller may set a smaller bound."""
    if method in ("exchange", "probe"):
        return answer_bytes(MAX_MESSAGE_BYTES)
    return _LISTED_BYTES if method in ("card", "held") else _BARE_BYTES


def answer_bytes(message_bytes: int) -> int:
    """Return the size of a reply with a message of so many bytes, or with a failure in its place."""
    return max(_ANSWER_HEAD_BYTES + message_bytes, _BARE_BYTES)


def holding_bytes(names: int) -> int:
    """Return the size of the largest list of so many names that is read: 64 KiB, or more for many generations."""
    return max(_LISTED_BYTES, names * _USUAL_NAME_BYTES)


def holding(reply: Reply, most: int) -> tuple[SentSegments, frozenset[GenerationId]]:
    """Return segments and generations of a holdings reply; raise for other replies, or more than ``most`` names."""
    if not isinstance(reply, DrafterHoldings):
        raise UnreadableReplyError(f"needs a list of generations, found a {type(reply).__name__}")
    if len(reply.generations) > most:
        raise UnreadableReplyError(f"needs at most {most} generations, found {len(reply.generations)}")
    return SentSegments(reply.segments, reply.resent), frozenset(reply.generations)


def plain(reply: Reply) -> bytes:
    if reply is None:
        return bytes([_NOTHING])
    if isinstance(reply, Answer):
        return bytes([ANSWER]) + SECONDS.pack(reply.drafter_s) + reply.data
    if isinstance(reply, DrafterCard):
        return bytes([_CARD]) + json.dumps(_card_fields(reply)).encode()
    return bytes([_HOLDING]) + _SENT.pack(reply.segments, reply.resent) + json.dumps(reply.generations).encode()


def plain_failure(error: Exception) -> bytes:
    """Encode the error of a drafter's method, with 200 characters of its text at most."""
    kinds = {ContextTooLongError: _TOO_LONG, DraftingFailedError: _NOT_THIS}
    kind = next((kind for type_, kind in kinds.items() if isinstance(error, type_)), _FAILED)
    return bytes([kind]) + f"{error!r:.{_MOST_REASON_CHARS}}".encode()


def read_reply(data: object, most_bytes: int = MAX_MESSAGE_BYTES) -> Reply:
    """Decode a reply.

    Args:
        data: a reply; a view is not copied before its size is checked.
        most_bytes: a larger reply is not read.

    Raises:
        ContextTooLongError: a generation does not fit the drafter.
        DraftingFailedError: the drafter fails at this generation.
        UnreadableReplyError: the bytes are not a valid reply, or too many.
        DrafterBrokenError: the drafter failed.
    """
    if not isinstance(data, bytes | memoryview) or not len(data):
        raise UnreadableReplyError(f"needs a reply in plain bytes, found a {type(data).__name__}; it was not read")
    if len(data) > most_bytes:
        raise UnreadableReplyError(f"needs a reply of at most {most_bytes} bytes, found {len(data)}; it was not read")
    kind, content = data[0], bytes(memoryview(data)[1:])
    if kind in (_TOO_LONG, _FAILED, _NOT_THIS):
        reason = content[: 4 * _MOST_REASON_CHARS].decode(errors="replace")[:_MOST_REASON_CHARS]
        if kind == _NOT_THIS:
            raise DraftingFailedError(reason)
        raise ContextTooLongError(reason) if kind == _TOO_LONG else DrafterBrokenError(f"failed: {reason}")
    try:
        return _READERS[kind](content)
    except (KeyError, ValueError, TypeError, struct.error, RecursionError) as error:
        raise UnreadableReplyError(f"needs a reply in plain bytes, found {bytes(data[:16])!r}") from error


def _nothing(content: bytes) -> None:
    if content:
        raise ValueError("needs no content")


def _answer(content: bytes) -> Answer:
    (drafter_s,) = SECONDS.unpack_from(content)
    if not 0.0 <= drafter_s < math.inf:
        raise ValueError("needs finite seconds")
    return Answer(content[SECONDS.size :], drafter_s)


def _card_fields(card: DrafterCard) -> dict[str, Any]:
    """Return what is written. Single versions are what a fleet of protocol 6 reads."""
    versions = card.versions
    single = {"protocol_version": versions.protocol.oldest, "noise_version": versions.noise.newest}
    return {**asdict(card), **single}


def _card(content: bytes) -> DrafterCard:
    read = json.loads(content)
    if not isinstance(ends := read["eos_token_ids"], list) or len(ends) > _MOST_ENDS:
        raise ValueError("needs a list of few ends")
    return DrafterCard(
        name=_text(read["name"]),
        model_hash=_text(read["model_hash"]),
        token_map_hash=_text(read["token_map_hash"]),
        vocab_size=_number(read["vocab_size"]),
        eos_token_ids=tuple(map(_number, ends)),
        max_context_tokens=_number(read["max_context_tokens"]),
        versions=_versions(read),
    )


def _versions(card: Mapping[str, Any]) -> Versions:
    ranges = card.get("versions")
    if ranges is None:
        protocol, noise = _number(card["protocol_version"]), _number(card["noise_version"])
        return Versions(VersionRange(protocol, protocol), MESSAGES_BEFORE_RANGES, VersionRange(noise, noise))
    return Versions(*(VersionRange(*map(_number, ranges[field.name])) for field in fields(Versions)))


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MOST_NAME_CHARS:
        raise ValueError("needs a short name")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_MOST_NUMBER <= value < _MOST_NUMBER:
        raise ValueError("needs a number of 64 bits")
    return value


def _holding(content: bytes) -> DrafterHoldings:
    sent = _SENT.unpack_from(content)
    names = json.loads(content[_SENT.size :])
    if not isinstance(names, list):
        raise TypeError("needs a list of names")
    return DrafterHoldings(tuple(map(_text, names)), *sent)


_READERS: dict[int, Callable[[bytes], Reply]] = {
    _NOTHING: _nothing,
    ANSWER: _answer,
    _CARD: _card,
    _HOLDING: _holding,
}
