"""The service under test: started from any checkout, bounded in memory, restarted if it is lost."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.cluster.served import PLAIN, free_port
from tests.hostile.gateway import GROUP, DialIn
from tests.hostile.measures import MIB, address_space_bytes, alive, descendants, free_bytes, memory_bytes, name_of

KEYS: Mapping[str, str] = {name: f"sk-hostile-{name}-0123456789" for name in ("alice", "mallory", "leaver")}
RELOAD_S = 1.0  # as planted
ROOT = Path(__file__).parents[2]
PLANTED = Path(__file__).parent / "planted"
_PROCESSES = {  # as Ray names them
    "ingress": "ray::ServeReplica:outrider:Ingress",
    "coordinator": "ray::ServeReplica:outrider:Coordinator",
    "verifier": "ray::VerifierActor",
    "fleet": "ray::FleetActor",
    "gateway": "ray::GatewayActor",
}
_BOUNDED = ("ingress", "coordinator", "fleet", "gateway")
_MORE_BYTES = 3 * 2**30  # of address space than a process has when it serves: what takes more is ended by that
_LEAST_FREE_BYTES = 2 * 2**30  # of the machine; below, the largest process of the service is killed
_GUARD_EVERY_S = 0.25
_START_WITHIN_S, _STARTS = 900.0, 3
_STOP_WITHIN_S = 60.0


def keys_text(*names: str) -> str:
    """A sound keys file of these."""
    return yaml.safe_dump({"keys": [{"name": name, "key": KEYS[name]} for name in names]})


@dataclass(frozen=True, slots=True)
class Layout:
    """How it is started.

    Attributes:
        checkout: whose code serves.
        devices: untrusted ones, beside the one that is trusted; they lie as they are told.
        keyless: without API keys.
        dial_in: its gateway, where it has one.
    """

    checkout: Path
    folder: Path
    devices: int = 1
    keyless: bool = False
    dial_in: DialIn | None = None

    @property
    def keys_file(self) -> Path:
        """Of API keys."""
        return self.folder / "keys.yaml"

    def settings(self, port: int) -> dict[str, Any]:
        """As a configuration file has them."""
        log = {"folder": str(self.folder / "rounds"), "most_mib": 1}
        visitors = [{"name": f"visitor{i}", "trust": "untrusted"} for i in range(self.devices)]
        dialled = [{"name": GROUP, "from": "gateway", "engine": "onnx"}] if self.dial_in else []
        gateway = {"gateway": self.dial_in.settings()} if self.dial_in else {}
        keyed = {} if self.keyless else {"auth": {"keys_file": str(self.keys_file)}}
        return {
            "http": {"port": port},
            "structured": {"tool_format": "hermes"},
            "drafters": [{"name": "lab", "trust": "trusted", "round_log": log}, *visitors, *dialled],
            **keyed,
            **gateway,
        }


class Service:
    """One that runs; ``restart`` puts another in its place on the same port."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.port = layout, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._over = threading.Event()
        self._guard = threading.Thread(target=self._watch_memory, name="memory", daemon=True)
        self._known: dict[str, list[int]] = {}
        self._bounded: set[int] = set()
        self.killed_for_memory = 0

    @contextlib.contextmanager
    def running(self) -> Iterator["Service"]:
        """Run it while the block is open."""
        self.layout.folder.mkdir(parents=True, exist_ok=True)
        (self.layout.folder / "hostile.yaml").write_text(yaml.safe_dump(self.layout.settings(self.port)))
        dial_in = self.layout.dial_in
        if dial_in is not None:
            dial_in.folder.mkdir(exist_ok=True)
            dial_in.prepare()
        self._start()
        self._guard.start()
        try:
            with contextlib.nullcontext() if dial_in is None else dial_in.honest(self.layout.checkout):
                yield self
        finally:
            self._over.set()
            self._stop()

    def restart(self) -> None:
        """Start it anew."""
        self._stop()
        self._start()

    def _start(self) -> None:
        """Start it; once more where Ray itself did not come up, which on a busy machine it does not always.

        Raises:
            RuntimeError: it does not start.
        """
        self.layout.keys_file.unlink(missing_ok=True)
        self.layout.keys_file.write_text(keys_text(*KEYS))
        for left in reversed(range(_STARTS)):
            output = self._begin()
            give_up_at_s = time.monotonic() + _START_WITHIN_S
            while "Ready:" not in output.read_text() and self._process.poll() is None:
                if time.monotonic() > give_up_at_s:
                    break
                time.sleep(0.2)
            if "Ready:" in output.read_text():
                break
            self._stop()
            if not left:
                raise RuntimeError(f"needs a service that starts, found:\n{output.read_text()}")
        self._known, self._bounded = {}, set()
        self.bound()

    def _begin(self) -> Path:
        """Start the process; the file of what it says."""
        folder = self.layout.folder
        output = folder / "serve.out"
        with output.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cluster.cli", "serve", "--config", str(folder / "hostile.yaml")],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.layout.checkout,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join((str(PLANTED), str(self.layout.checkout))),
                    "OUTRIDER_HOSTILE": str(folder),
                    "OMP_NUM_THREADS": "1",
                    "RAY_worker_niceness": "0",  # not behind whatever else runs on this machine, as by default
                    "RAY_USAGE_STATS_ENABLED": "0",
                    "HF_HUB_OFFLINE": "1",
                },
            )
        return output

    def _stop(self) -> None:
        """Ctrl-C, then by force; whatever descends from it ends, too."""
        pids = list(descendants(self._process.pid))
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in pids:
            if alive(pid) and str(self.layout.folder) in _environment(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def pids(self, kind: str) -> list[int]:
        """Processes of a kind that run; looked for anew when one of those known has ended."""
        known = self._known.get(kind, [])
        if not known or not all(map(alive, known)):
            of_service = descendants(self._process.pid)
            known = [pid for pid in of_service if name_of(pid).startswith(_PROCESSES[kind]) and alive(pid)]
            self._known[kind] = sorted(known)
        return self._known[kind]

    def drafter_pid(self, group: str) -> int:
        """The process of a group's drafter, by its own word."""
        return int((self.layout.folder / f"drafter-{group}-0.pid").read_text())

    def bound(self) -> None:
        """Bound the address space of those who read what strangers send, so that nothing takes the machine."""
        for kind in _BOUNDED:
            for pid in self.pids(kind):
                if pid not in self._bounded:
                    most = address_space_bytes(pid) + _MORE_BYTES
                    with contextlib.suppress(ProcessLookupError, ValueError):
                        _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
                        within = most if hard == resource.RLIM_INFINITY else min(most, hard)
                        resource.prlimit(pid, resource.RLIMIT_AS, (within, hard))
                    self._bounded.add(pid)

    def bound_files(self, kind: str, most_bytes: int) -> None:
        """Let no file of a process grow beyond so many bytes, as if its disk were full; -1 lets them grow again."""
        for pid in self.pids(kind) if kind in _PROCESSES else [self.drafter_pid(kind)]:
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes if most_bytes >= 0 else hard, hard))

    def healthy(self) -> bool:
        """Whether ``/health`` answers now."""
        try:
            return httpx.get(f"{self.url}/health", timeout=5, verify=PLAIN).is_success
        except httpx.HTTPError:
            return False

    def whole_again(self, within_s: float) -> bool:
        """Wait until the ingress and a verifier serve; whether they do in time."""
        give_up_at_s = time.monotonic() + within_s
        while time.monotonic() < give_up_at_s:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/ready", timeout=10, verify=PLAIN).is_success:
                    self.bound()
                    return True
            time.sleep(0.2)
        return False

    def get(self, path: str, key: str = "mallory") -> httpx.Response | None:
        """One answer; None if there is none."""
        headers = {"Authorization": f"Bearer {KEYS[key]}"}
        try:
            return httpx.get(f"{self.url}{path}", timeout=20, verify=PLAIN, headers=headers)
        except httpx.HTTPError:
            return None

    def _watch_memory(self) -> None:
        while not self._over.wait(_GUARD_EVERY_S):
            if free_bytes() < _LEAST_FREE_BYTES:
                pids: Sequence[int] = list(descendants(self._process.pid))
                worst = max(pids, key=memory_bytes, default=0)
                print(f"the machine has {free_bytes() // MIB} MiB left: {name_of(worst)} is killed", flush=True)
                self.killed_for_memory += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worst, signal.SIGKILL)
                self._over.wait(5.0)


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""
