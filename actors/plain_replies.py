"""What an untrusted drafter answers, as plain bytes: numbers, names and text, and nothing that runs when it is read.

Ray pickles what actors return and reads such pickles wherever they arrive, so what comes from a device that is not
trusted is written here instead. Each reply is a byte that says what it is, and its content.
"""

import json
import math
import struct
from collections.abc import Callable

from pydantic import TypeAdapter, ValidationError

from actors.messages import Answer, Holding, ModelCard
from outrider.contracts.errors import ContextTooLongError, DrafterBrokenError, DraftingFailedError

_NOTHING, _ANSWER, _CARD, _HOLDING, _TOO_LONG, _FAILED, _NOT_THIS = range(7)
_SECONDS = struct.Struct("<d")
_SENT = struct.Struct("<QQ")  # segments, and those sent again
_MOST_REASON_CHARS = 200
_CARDS: TypeAdapter[ModelCard] = TypeAdapter(ModelCard)

Reply = Answer | ModelCard | Holding | None


def plain(reply: Reply) -> bytes:
    """What a drafter answers, in bytes."""
    if reply is None:
        return bytes([_NOTHING])
    if isinstance(reply, Answer):
        return bytes([_ANSWER]) + _SECONDS.pack(reply.drafter_s) + reply.data
    if isinstance(reply, ModelCard):
        return bytes([_CARD]) + _CARDS.dump_json(reply)
    return bytes([_HOLDING]) + _SENT.pack(reply.segments, reply.resent) + json.dumps(reply.generations).encode()


def plain_failure(error: Exception) -> bytes:
    """Why it does not."""
    kinds = {ContextTooLongError: _TOO_LONG, DraftingFailedError: _NOT_THIS}
    kind = next((kind for type_, kind in kinds.items() if isinstance(error, type_)), _FAILED)
    return bytes([kind]) + f"{error!r:.{_MOST_REASON_CHARS}}".encode()


def read_reply(data: object) -> Reply:
    """What the bytes say.

    Raises:
        ContextTooLongError: a generation does not fit the drafter.
        DraftingFailedError: it fails at this generation.
        DrafterBrokenError: it failed, or these are no bytes of a reply.
    """
    if not isinstance(data, bytes) or not data:
        raise DrafterBrokenError(f"needs a reply in plain bytes, found a {type(data).__name__}; it was not read")
    kind, content = data[0], data[1:]
    if kind in (_TOO_LONG, _FAILED, _NOT_THIS):
        reason = content[: 4 * _MOST_REASON_CHARS].decode(errors="replace")[:_MOST_REASON_CHARS]
        if kind == _NOT_THIS:
            raise DraftingFailedError(reason)
        raise ContextTooLongError(reason) if kind == _TOO_LONG else DrafterBrokenError(f"failed: {reason}")
    try:
        return _READERS[kind](content)
    except (KeyError, ValueError, struct.error, RecursionError, ValidationError) as error:
        raise DrafterBrokenError(f"needs a reply in plain bytes, found {data[:16]!r}") from error


def _nothing(content: bytes) -> None:
    if content:
        raise ValueError("needs no content")


def _answer(content: bytes) -> Answer:
    (drafter_s,) = _SECONDS.unpack_from(content)
    if not math.isfinite(drafter_s):
        raise ValueError("needs finite seconds")
    return Answer(content[_SECONDS.size :], drafter_s)


def _holding(content: bytes) -> Holding:
    sent = _SENT.unpack_from(content)
    names = json.loads(content[_SENT.size :])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("needs a list of names")
    return Holding(tuple(names), *sent)


_READERS: dict[int, Callable[[bytes], Reply]] = {
    _NOTHING: _nothing,
    _ANSWER: _answer,
    _CARD: _CARDS.validate_json,
    _HOLDING: _holding,
}
