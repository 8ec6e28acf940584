"""When to take what a file of API keys holds: never while somebody is still writing it.

A file that is written in place looks sound at many moments: cut behind another key's line, or inside a number. So it is
taken, or refused, only when two reads ``settle_s`` apart were equal. A file that has vanished or cannot be read is
content like any other: what it held last stays in use, and that is said once.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256


class KeyFileRead(StrEnum):
    """What one read of the file means."""

    SAME = "same"  # as it was when last judged
    CHANGING = "changing"  # read it again in ``settle_s``
    SETTLED = "settled"  # take it, or refuse it


@dataclass(frozen=True, slots=True)
class KeyFileWatch:
    """What was read of the file until now, by digests.

    Attributes:
        judged: what was last taken or refused; None: nothing yet.
        pending: another one that was read since, first at ``pending_at_s``.
    """

    judged: bytes | None = None
    pending: bytes | None = None
    pending_at_s: float = 0.0


def after_read(
    watch: KeyFileWatch, content: bytes | str, now_s: float, settle_s: float
) -> tuple[KeyFileWatch, KeyFileRead]:
    """What a read means, and what is known after it.

    Args:
        watch: what is known.
        content: what the file holds; as text, why it cannot be read.
        now_s: when the read began, on a monotonic clock.
        settle_s: how long a content has to stand.
    """
    digest = sha256(b"file\0" + content if isinstance(content, bytes) else b"error\0" + content.encode()).digest()
    if digest == watch.judged:
        return replace(watch, pending=None), KeyFileRead.SAME
    if digest != watch.pending:
        return replace(watch, pending=digest, pending_at_s=now_s), KeyFileRead.CHANGING
    if now_s - watch.pending_at_s < settle_s:
        return watch, KeyFileRead.CHANGING
    return KeyFileWatch(judged=digest), KeyFileRead.SETTLED
