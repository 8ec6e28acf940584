"""A service in a process of its own, started by the command line as an operator would: HTTP and signals reach it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

START_WITHIN_S = 300.0
MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class Served:
    """A running service: where it listens, and the process that started it."""

    url: str
    pid: int
    logs: Path
    metrics_url: str

    def get(self, path: str) -> httpx.Response:
        """One request."""
        return httpx.get(f"{self.url}{path}", timeout=60)

    def status(self) -> dict[str, Any]:
        """What coordinators and fleet say; empty while they do not."""
        response = self.get("/status")
        return dict(response.json()) if response.status_code == httpx.codes.OK else {}

    def events(self, *names: str) -> int:
        """How often these events were logged."""
        lines = (line for file in self.logs.glob("worker*.err") for line in file.read_text().splitlines())
        return sum(line.startswith("{") and json.loads(line).get("event") in names for line in lines)

    def pids(self, process: str) -> list[int]:
        """Processes of this service that run an actor whose name begins so (Ray names processes after their actors)."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    command = (folder / "cmdline").read_text()
                except OSError:
                    continue
                if command.startswith(f"ray::{process}") and self.pid in ancestors(int(folder.name)):
                    found.append(int(folder.name))
        return sorted(found)

    def kill(self, process: str, most: int = 100) -> list[int]:
        """Kill processes at once, as a power cut would; at least one has to run."""
        return self._signal(process, signal.SIGKILL, most)

    def stop(self, process: str, most: int = 100) -> list[int]:
        """Make processes hang."""
        return self._signal(process, signal.SIGSTOP, most)

    def _signal(self, process: str, number: signal.Signals, most: int) -> list[int]:
        pids = self.pids(process)[:most]
        assert pids, f"no {process} runs"
        for pid in pids:
            os.kill(pid, number)
        return pids

    def idle(self, coordinators: int, drafters: int) -> bool:
        """Whether everybody is back, nothing is under way, and nobody holds KV or a lease."""
        status = self.status()
        if not status or len(status["coordinators"]) != coordinators or len(status["drafters"]) != drafters:
            return False
        quiet = all(
            report["generations"] == report["queued_generations"] == report["queued_blocks"] == 0
            and (report["kv"] is None or report["kv"]["used_blocks"] == report["kv"]["generations"] == 0)
            for report in status["coordinators"]
        )
        return quiet and all(d["state"] == "ready" and d["generations"] == d["held"] == 0 for d in status["drafters"])


@contextlib.contextmanager
def served(folder: Path, settings: Mapping[str, object]) -> Iterator[Served]:
    """Run ``outrider serve`` with these settings while the block is open; ``folder`` takes its files."""
    port = free_port()
    file = folder / "outrider.yaml"
    file.write_text(yaml.safe_dump({**settings, "http": {"port": port}}))
    output = folder / "serve.out"
    with output.open("w") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "cluster.cli", "serve", "--config", str(file)],
            stdout=stdout,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )
        try:
            eventually(lambda: "Ready:" in output.read_text() or process.poll() is not None, START_WITHIN_S)
            said = output.read_text()
            assert "Ready:" in said, said
            logs, metrics = (_said(said, name) for name in ("Logs", "Metrics"))
            yield Served(f"http://127.0.0.1:{port}", process.pid, Path(logs), metrics)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def _said(output: str, name: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith(f"{name}: ")]
    return line.removeprefix(f"{name}: ")


def eventually(holds: Callable[[], bool], within_s: float) -> None:
    """Poll until a condition holds; fails after ``within_s`` seconds."""
    give_up_at_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up_at_s, f"not within {within_s:g} s"
        time.sleep(0.1)


def free_port() -> int:
    """A port nobody listens on now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]


def ancestors(pid: int) -> Iterator[int]:
    """Parents of a process, nearest first."""
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(status.rpartition(")")[2].split()[1])
        yield pid
