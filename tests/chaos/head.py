"""Ray's head process, with Redis as its memory: killed, and started again as whoever looks after a head would."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray

from tests.chaos.processes import becomes, gone, killed, pids_of
from tests.chaos.schedules import Victim
from tests.cluster.served import Service, free_port

_ADDRESS = "RAY_REDIS_ADDRESS"
_PORT = "--gcs_server_port="
_UP_WITHIN_S = 30.0


@contextmanager
def remembered(folder: Path) -> Iterator[bool]:
    """Run Redis while the block is open, and have a head that is started in it use it; False where there is none."""
    program = shutil.which("redis-server")
    if program is None:
        yield False
        return
    port, log = free_port(), folder / "redis.log"
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        assert becomes(lambda: b"Ready to accept" in log.read_bytes(), _UP_WITHIN_S), log.read_text()
        os.environ[_ADDRESS] = f"127.0.0.1:{port}"
        yield True
    finally:
        os.environ.pop(_ADDRESS, None)
        process.kill()
        process.wait(_UP_WITHIN_S)


class HeadRestarts:
    """The head of a cluster that is remembered."""

    def __init__(self, service: Service) -> None:
        (pid,) = pids_of(service, Victim.GCS)
        process = Path(f"/proc/{pid}")
        self._pid = pid
        command = process.joinpath("cmdline").read_bytes().decode().split("\0")[:-1]
        # It chose a port for itself; where it is started again everybody looks for it there.
        port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
        self._command = [_PORT + port if part.startswith(_PORT) else part for part in command]
        assert _PORT + port in self._command, command
        pairs = process.joinpath("environ").read_bytes().decode().split("\0")[:-1]
        self._environment = dict(pair.split("=", 1) for pair in pairs)
        self._again: subprocess.Popen[bytes] | None = None

    def __call__(self) -> str:
        """Restart it; how it is known that it was, empty if it was not."""
        before = self._pid
        found = killed(before)
        if self._again is not None:
            self._again.wait(_UP_WITHIN_S)
        null = subprocess.DEVNULL
        self._again = subprocess.Popen(self._command, env=self._environment, stdout=null, stderr=null)
        self._pid = self._again.pid
        return f"{found}, process {self._pid} has taken its place" if found and not gone(self._pid) else ""

    def end(self) -> None:
        """Of what was started here."""
        if self._again is not None:
            self._again.kill()
            self._again.wait(_UP_WITHIN_S)
