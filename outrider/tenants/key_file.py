"""Decide when to load a file of API keys: never while it is still being written.

A file that is written in place can look valid at many moments: cut behind a key's line, or inside a number. So it is
loaded or refused only after two reads ``settle_s`` apart were equal. A missing or unreadable file counts as content
like any other: the last valid keys stay in use, and the error is reported once.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256


class KeyFileRead(StrEnum):
    SAME = "same"  # unchanged since last judged
    CHANGING = "changing"  # read it again in ``settle_s``
    SETTLED = "settled"  # load it, or refuse it


@dataclass(frozen=True, slots=True)
class KeyFileWatch:
    judged: bytes | None = None  # last content loaded or refused; None if there was none
    pending: bytes | None = None  # another content read since, first at ``pending_at_s``
    pending_at_s: float = 0.0


def after_read(
    watch: KeyFileWatch, content: bytes | str, now_s: float, settle_s: float
) -> tuple[KeyFileWatch, KeyFileRead]:
    """Return the new state and the result of a read.

    Args:
        watch: state so far.
        content: bytes of the file; as text, why it cannot be read.
        now_s: when the read began, on a monotonic clock.
        settle_s: for how long a content must be unchanged.
    """
    digest = sha256(b"file\0" + content if isinstance(content, bytes) else b"error\0" + content.encode()).digest()
    if digest == watch.judged:
        return replace(watch, pending=None), KeyFileRead.SAME
    if digest != watch.pending:
        return replace(watch, pending=digest, pending_at_s=now_s), KeyFileRead.CHANGING
    if now_s - watch.pending_at_s < settle_s:
        return watch, KeyFileRead.CHANGING
    return KeyFileWatch(judged=digest), KeyFileRead.SETTLED
