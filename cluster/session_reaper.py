"""Kill what is left of a Ray session when the process that started it is killed.

Ray's servers notice that their driver is gone, but an agent that then reports to the head, which is gone as well, stays
for a minute. So a separate process waits for the end of its standard input, a pipe from the driver.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_GRACE_S = 3.0  # time for Ray to end its processes itself
_MOST_ROUNDS = 10
_PAUSE_S = 0.3  # between two scans, for killed processes to end


def start_reaper(session: Path) -> "subprocess.Popen[bytes]":
    """Have a session's processes killed when this process ends; ``dismiss`` calls it off."""
    command = [sys.executable, "-E", "-s", str(Path(__file__).resolve()), str(session)]
    # a session of its own: Ctrl-C in the terminal is for the driver
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def dismiss(reaper: "subprocess.Popen[bytes]") -> None:
    reaper.kill()
    reaper.wait()
    if reaper.stdin is not None:
        reaper.stdin.close()


def left_of(session: Path, processes: Path = Path("/proc")) -> list[int]:
    """Processes of this user that have the session's folder, or a path below it, in an argument."""
    marks = (f"{session}/".encode(), f"{session}\0".encode())
    found = []
    for folder in processes.iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / "cmdline").read_bytes() + b"\0"
            if folder.stat().st_uid == os.getuid() and any(mark in command for mark in marks):
                found.append(int(folder.name))
        except OSError:  # it has ended meanwhile, or belongs to another user
            continue
    return found


def end_all(session: Path) -> None:
    """Kill a session's processes, including those started meanwhile; takes a bounded time.

    Two scans in a row must find none: a process shows no arguments for a moment while it begins.
    """
    none_left = 0
    for _ in range(_MOST_ROUNDS):
        left = left_of(session)
        for process in left:
            with suppress(ProcessLookupError, PermissionError):  # it has ended meanwhile; its number may be another's
                os.kill(process, signal.SIGKILL)
        none_left = 0 if left else none_left + 1
        if none_left == 2:
            return
        time.sleep(_PAUSE_S)


def _main(session: Path) -> None:
    sys.stdin.buffer.read()  # until the driver has ended
    time.sleep(_GRACE_S)
    end_all(session)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
