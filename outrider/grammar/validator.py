"""Process that validates grammars, one at a time, with bounds on what a grammar may use.

``python -m outrider.grammar.validator BYTES`` has a socket as its input, and imports little but the grammar library.
The bounds are the kernel's, so the library cannot exceed them: an address space of ``BYTES`` above that of the warm
process, CPU time, and an alarm. Each ends the process, and its owner starts another. A closed socket ends it, too, so
it does not outlive its owner.
"""

import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outrider.fair_queueing.worker import stack_size
from outrider.grammar.validating import STACK_BYTES, GrammarKind, GrammarSource, validate

MEMORY_BYTES = 512 * 2**20  # above a warm process's; the largest accepted grammar needs 200 MiB
_LEFT_OVER_BYTES = 64 * 2**20  # left by finished grammars; above it the process is replaced
_LENGTH = struct.Struct("!I")
_HIGHEST_OOM_SCORE = "1000"
_BEHIND = 2  # nice value, so that the ingress and models on the same cores come first


def send(connection: socket.socket, message: object) -> None:
    content = json.dumps(message).encode()
    connection.sendall(_LENGTH.pack(len(content)) + content)


def receive(connection: socket.socket) -> Any:
    """Read one message; ``EOFError`` once the peer has closed the socket."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return json.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        piece = connection.recv(min(size - len(content), 2**16))
        if not piece:
            raise EOFError("the other side is gone")
        content += piece
    return bytes(content)


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _bound_memory(memory_bytes: int) -> int:
    """Limit this process's memory, and make it the kernel's first OOM victim; return its present address space."""
    warm = _address_space_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (warm + memory_bytes, warm + memory_bytes))
    Path("/proc/self/oom_score_adj").write_text(_HIGHEST_OOM_SCORE)
    return warm


def serve(connection: socket.socket, memory_bytes: int) -> None:
    """Answer each ``{"source": ..., "cpu_s": ..., "alarm_s": ...}`` by a ``GrammarVerdict``, until the peer is gone.

    On one thread with a small stack (``STACK_BYTES``): a thread for each grammar may begin before the one before has
    given back its arena, gets another of 64 MiB, and the process would take itself for one that finished grammars fill.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: its owner handles it
    with stack_size(STACK_BYTES):
        thread = threading.Thread(target=_serve, args=(connection, memory_bytes))
        thread.start()
    thread.join()


def _serve(connection: socket.socket, memory_bytes: int) -> None:
    for source in (GrammarSource(GrammarKind.JSON_SCHEMA, "{}"), GrammarSource(GrammarKind.RULES, 'root ::= "a"')):
        assert validate(source).is_valid  # imports everything: the process is warm
    warm = _bound_memory(memory_bytes) if sys.platform == "linux" else 0
    os.nice(_BEHIND)
    send(connection, "ready")
    while True:
        try:
            asked = receive(connection)
        except (EOFError, ConnectionError):
            return
        signal.setitimer(signal.ITIMER_PROF, asked["cpu_s"])  # both timers end this process, even without its owner
        signal.setitimer(signal.ITIMER_REAL, asked["alarm_s"])
        verdict = validate(_source(asked["source"]))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        send(connection, asdict(verdict))
        if warm and _address_space_bytes() > warm + _LEFT_OVER_BYTES:
            return


def _source(fields: dict[str, Any]) -> GrammarSource:
    return GrammarSource(**{**fields, "kind": GrammarKind(fields["kind"])})


if __name__ == "__main__":
    serve(socket.socket(fileno=sys.stdin.fileno()), int(sys.argv[1]))
