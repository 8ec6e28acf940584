"""Verifiers that are started again on one node load one after the other: the first serves the others' responses.

Two that load beside each other on few cores are both late. The turn is a lock on a folder, which the system takes back
from a process that dies, and nobody waits behind one that hangs for longer than a deadline.
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
    """Have the turn among processes that name this folder; False: not within the deadline, or it cannot be had."""
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
    """None: another process has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:
        return False
    return True
