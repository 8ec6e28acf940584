"""Lets verifiers that restart on one node load one after another: the first then serves the others' responses.

Two that load at once on few cores are both late. The turn is a lock on a folder: the system releases it when its
process dies, and a process that hangs delays the others by a deadline at most.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ASKED_AGAIN_S = 0.05


@contextmanager
def load_turn(folder: Path, deadline_s: float) -> Iterator[bool]:
    """Take the turn of this folder; yield False if it is not free in time or cannot be locked."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        yield False
        return
    give_up_at_s = time.monotonic() + deadline_s
    try:
        while (has_turn := _locked(lock)) is None and time.monotonic() < give_up_at_s:
            time.sleep(_ASKED_AGAIN_S)
        yield bool(has_turn)
    finally:
        os.close(lock)


def _locked(lock: int) -> bool | None:
    """Try to lock; None: another process has the lock, False: the file system allows none."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:
        return False
    return True
