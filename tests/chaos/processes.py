"""The processes of a service under test: found, struck by signals, and asked what they hold."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.schedules import Victim
from tests.cluster.served import Service, ancestors

ACTORS: Mapping[Victim, str] = {  # as Ray names their processes
    Victim.DRAFTER: "DrafterActor",
    Victim.VERIFIER: "VerifierActor",
    Victim.COORDINATOR: "ServeReplica:outrider:Coordinator",
    Victim.INGRESS: "ServeReplica:outrider:Ingress",
    Victim.PROXY: "ProxyActor",
    Victim.FLEET: "FleetActor",
    Victim.GATEWAY: "GatewayActor",
}
RAYS_OWN: Mapping[Victim, str] = {Victim.GCS: "gcs_server", Victim.RAYLET: "raylet"}
_OF_DEVICES = b"edge.main"  # in their command lines (``tests.chaos.devices``)
_EFFECT_WITHIN_S = 10.0
_ANSWER_WITHIN_S = 5.0


def pids_of(service: Service, victim: Victim) -> list[int]:
    """Of those that run, the oldest first."""
    if victim in ACTORS:
        return service.pids(ACTORS[victim])
    found = []
    for folder in Path("/proc").iterdir():
        pid = int(folder.name) if folder.name.isdigit() else 0
        if pid and _is(pid, victim) and not gone(pid) and service.pid in ancestors(pid):
            found.append(pid)
    return sorted(found)


def all_pids(service: Service) -> dict[int, Victim]:
    """Every process of the service that there is a name for."""
    return {pid: victim for victim in (*ACTORS, *RAYS_OWN, Victim.DEVICE) for pid in pids_of(service, victim)}


def _is(pid: int, victim: Victim) -> bool:
    try:
        if victim is Victim.DEVICE:
            return _OF_DEVICES in Path(f"/proc/{pid}/cmdline").read_bytes()
        return Path(f"/proc/{pid}/comm").read_text().strip() == RAYS_OWN[victim]
    except OSError:
        return False


def state_of(pid: int) -> str:
    """``R``, ``S``, ``T`` (stopped), ``Z``, ...; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def gone(pid: int) -> bool:
    """Whether it has ended, collected or not."""
    return state_of(pid) in ("", "Z", "X")


def becomes(holds: Callable[[], bool], within_s: float = _EFFECT_WITHIN_S) -> bool:
    """Whether something comes to hold in time."""
    give_up_at_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > give_up_at_s:
            return False
        time.sleep(0.02)
    return True


def killed(pid: int) -> str:
    """Kill a process; how it is known that it is dead, empty if it is not."""
    os.kill(pid, signal.SIGKILL)
    return f"process {pid} is gone" if becomes(lambda: gone(pid)) else ""


def stopped(pid: int) -> str:
    """Stop a process; likewise."""
    os.kill(pid, signal.SIGSTOP)
    return f"process {pid} is stopped" if becomes(lambda: state_of(pid) == "T" or gone(pid)) and not gone(pid) else ""


def continued(pid: int) -> None:
    """Let it go on, if it is still there."""
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return


@dataclass(frozen=True, slots=True)
class Census:
    """What a process holds.

    Attributes:
        tasks: of its event loops, by the coroutine's folder and name.
        files: descriptors.
        rss_bytes: of its own memory, shared pages left out.
    """

    victim: Victim
    tasks: Mapping[str, int]
    threads: int
    files: int
    rss_bytes: int


def census(service: Service, folder: Path) -> dict[int, Census]:
    """What each process of ours holds now, by its own word; one that does not answer is left out."""
    found = {}
    for pid, victim in all_pids(service).items():
        told = _asked(folder / f"{pid}.sock")
        if told is not None:
            found[pid] = Census(victim, told["tasks"], told["threads"], _files(pid), rss_bytes(pid))
    return found


def _asked(path: Path) -> dict[str, Any] | None:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_ANSWER_WITHIN_S)
            client.connect(str(path))
            content = b""
            while part := client.recv(65_536):
                content += part
        answer: dict[str, Any] = json.loads(content)
    except (OSError, ValueError):
        return None
    return answer


def _files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def rss_bytes(pid: int) -> int:
    """Private memory of a process; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["RssAnon"].split()[0]) * 1024 if "RssAnon" in fields else 0
