"""A real one-node cluster, started by ``ray start`` in a session of its own and ended by its process group."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.cluster.served import free_ports

ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")
_UP_WITHIN_S = 120
_DOWN_WITHIN_S = 60


@dataclass(frozen=True)
class Head:
    """The cluster: where it listens, and what a client's environment needs to be let in."""

    address: str
    dashboard_url: str
    token: str
    environment: dict[str, str]
    session: int  # of its processes

    def pid(self, program: str) -> int:
        """Of its one process that runs a program."""
        (found,) = (pid for pid in of_session(self.session) if Path(f"/proc/{pid}/exe").resolve().name == program)
        return found

    def outrider(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the command line against it, as a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "cluster.cli", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )

    def available(self, resource: str) -> float:
        """How much of a resource nobody claims."""
        amount = f"ray.available_resources().get({resource!r}, 0.0)"
        asks = f"import ray; ray.init({self.address!r}, logging_level=50, log_to_driver=False); print({amount})"
        command = [sys.executable, "-c", asks]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True, timeout=120)
        return float(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def head() -> Iterator[Head]:
    """CPUs, a simulated Jetson and room for a verifier."""
    with started_head() as head:
        yield head


@contextlib.contextmanager
def started_head(variables: Mapping[str, str] = MappingProxyType({}), *, supervised: bool = True) -> Iterator[Head]:
    """A head that runs while the block is open; ``supervised``, it ends as soon as one of its processes does."""
    port, client, dashboard, agent = free_ports(4)
    folder = Path(tempfile.mkdtemp(prefix="outrider-"))  # short: Ray puts sockets into it
    token = secrets.token_hex(32)
    (folder / "token").write_text(token, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "NO_COLOR": "1",
        **variables,
    }
    options = {
        "port": port,
        "ray-client-server-port": client,
        "dashboard-port": dashboard,
        "dashboard-agent-listen-port": agent,
        "num-cpus": 4,
        "resources": '{"jetson": 1, "verifier": 1}',
        "object-store-memory": 100 * 2**20,
        "temp-dir": folder,
    }
    command = [
        str(RAY),
        "start",
        "--head",
        *["--block"] * supervised,
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    log = folder / "start.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{dashboard}"
        _await_up(process, log)
        yield Head(f"127.0.0.1:{port}", url, token, environment, process.pid)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DOWN_WITHIN_S)
        for pid in of_session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _await_up(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """``ray start`` says so when everything runs."""
    give_up_at_s = time.monotonic() + _UP_WITHIN_S
    while "Ray runtime started" not in log.read_text(encoding="utf-8"):
        assert not process.poll(), log.read_text(encoding="utf-8")
        assert time.monotonic() < give_up_at_s, log.read_text(encoding="utf-8")
        time.sleep(0.1)


def of_session(session: int) -> list[int]:
    """Processes of a session that run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            state, _, _, own = status.rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                found.append(int(folder.name))
    return found
