"""Servers under measurement: each in its own processes, started by its own command line, on localhost."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.contracts.errors import OutriderError

_START_DEADLINE_S = 240.0
_STOP_DEADLINE_S = 60.0
_POLL_S = 0.2
_LOG_CHARS = 400


class ServerFailedError(OutriderError):
    """A server did not come up."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to query a server: fields of every request's body besides the chat."""

    name: str
    extra: Mapping[str, object] = field(default_factory=dict)
    takes_seeds: bool = True


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    command: tuple[str, ...]  # ``{port}`` stands for the port to listen on
    ready: str  # what it prints when it is ready
    environment: Mapping[str, str]  # added to this process's own
    arms: tuple[Arm, ...]  # ways to query it
    lacks: str = ""  # missing requirement, if any: then it is not started


@contextlib.contextmanager
def started(server: Server, log: Path) -> Iterator[str]:
    """Run a server while the block is open; yields its URL. Its output goes to ``log``.

    Raises:
        ServerFailedError: it does not come up, or lacks something.
    """
    if server.lacks:
        raise ServerFailedError(f"not available: {server.lacks}")
    port = free_port()
    with log.open("w") as output:
        process = subprocess.Popen(
            [part.format(port=port) for part in server.command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **server.environment},
            start_new_session=True,
        )
        try:
            _await_ready(server, process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_ready(server: Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    give_up_at_s = time.monotonic() + _START_DEADLINE_S
    while server.ready not in (printed := log.read_text(errors="replace")):
        ended, late = process.poll() is not None, time.monotonic() > give_up_at_s
        if ended or late:
            found = f"exit status {process.returncode}" if ended else f"no sign of it after {_START_DEADLINE_S:g} s"
            end = printed.strip()[-_LOG_CHARS:]
            raise ServerFailedError(f"needs {server.name} to print {server.ready!r}, found {found}: {end}")
        time.sleep(_POLL_S)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Terminate it, then kill what is left of its process group."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_DEADLINE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_DEADLINE_S)
