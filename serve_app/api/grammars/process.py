"""Handle of one process that validates grammars."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from enum import Enum
from pathlib import Path

import outrider
from outrider.grammar.validating import GrammarSource, GrammarVerdict
from outrider.grammar.validator import MEMORY_BYTES, receive, send

_START_S = 30.0  # on a busy machine; an idle one takes a tenth of a second
_MOST_WALL = 3.0  # times the grammar's CPU time: load of other processes is no fault of the grammar
_OWN_ALARM_S = 0.5  # after the owner's deadline the process ends itself, in case the owner is gone
_KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT")


class Lost(Enum):
    DEADLINE = "its time limit passed, and the process was killed"
    CRASHED = "the process ended while it compiled"
    GONE = "the process had ended, or was killed from outside"


_BY_STATUS = {
    -signal.SIGPROF: Lost.DEADLINE,
    -signal.SIGKILL: Lost.GONE,
    -signal.SIGTERM: Lost.GONE,
    0: Lost.GONE,
}


class ValidatorProcess:
    """Starts at once, warms up in a moment. Methods block, so never call them on an event loop. Not thread-safe."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        """Start with ``memory_bytes`` beyond what a warm process needs."""
        self._connection, theirs = socket.socketpair()
        with theirs, ExitStack() as undone:
            undone.callback(self._connection.close)
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", "outrider.grammar.validator", str(memory_bytes)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a library that aborts writes a page
                env=_environment(),
            )
            undone.pop_all()
        self.is_warm = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_warm(self) -> None:
        """Wait until the process can validate; raise ``OSError`` if it did not start."""
        if not self.is_warm:
            self._connection.settimeout(_START_S)
            try:
                self.is_warm = receive(self._connection) == "ready"
            except EOFError as error:
                raise OSError(f"the grammar validator ended with {self._process.wait()} at its start") from error

    def validate(self, source: GrammarSource, cpu_s: float) -> GrammarVerdict | Lost:
        """Validate a source within this CPU time; close the process if it is lost."""
        deadline_s = _MOST_WALL * cpu_s
        give_up_at_s = time.monotonic() + deadline_s
        asked = {"source": asdict(source), "cpu_s": cpu_s, "alarm_s": deadline_s + _OWN_ALARM_S}
        try:
            self._connection.settimeout(deadline_s)
            send(self._connection, asked)
        except OSError:
            return Lost.GONE
        try:
            self._connection.settimeout(max(give_up_at_s - time.monotonic(), 1e-6))
            return GrammarVerdict(**receive(self._connection))
        except TimeoutError:
            return Lost.DEADLINE
        except (EOFError, OSError):
            return _BY_STATUS.get(self._process.wait(), Lost.CRASHED)

    def kill(self) -> None:
        """Kill the process; from any thread, also while it validates."""
        self._process.kill()

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _environment() -> dict[str, str]:
    """Environment for the same modules: an explicit import path instead of site packages, and no secrets."""
    paths = [str(Path(outrider.__file__).parents[1]), *filter(None, sys.path)]
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(paths)}
