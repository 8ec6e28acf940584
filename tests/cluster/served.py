"""A running service: what it is asked, what its owners say they hold, and how its processes are killed."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import ray
import yaml
from prometheus_client.parser import text_string_to_metric_families
from ray.exceptions import RayError

from actors.fleet.timeouts import FleetTimeouts
from cluster.local import APP_NAME, running
from outrider.config.reading import load_config
from outrider.config.schema import Config
from serve_app.metrics import Metric
from tests.cluster.inquirer import Inquirer

START_WITHIN_S = 300.0
MODEL = "smollm2-135m-instruct"
TOKENS = 24  # of a completion, unless it says otherwise
PACE = FleetTimeouts()
HEALERS = ("generations_orphaned", "leases_expired")  # events: the fleet found out what nobody had told it
# Of no use over HTTP, but without one httpx reads a hundred certificates for each request.
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_ANSWER_WITHIN_S = 60.0
_SILENT, _SILENT_WITHIN_S = "fleet or coordinators", 120.0


@dataclass(frozen=True)
class Service:
    """Where it listens, what it was started with, and the process all of its processes descend from."""

    url: str
    config: Config
    logs: Path
    pid: int = field(default_factory=os.getpid)

    def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Send one request and return the JSON answer."""
        response = httpx.post(f"{self.url}{path}", json=body, timeout=300, verify=PLAIN)
        assert response.status_code == httpx.codes.OK, response.text
        return dict(response.json())

    def complete(self, prompt: str | Sequence[object], **request: object) -> dict[str, Any]:
        """One completion, of a prompt as text or token ids, or of several; as the target itself draws, unless told."""
        drawn = {"temperature": 1.0, "top_p": 1.0}
        body = {"model": MODEL, "prompt": prompt, "max_tokens": TOKENS, **drawn, **request}
        return self.post("/v1/completions", body)

    def under_each(self, choices: Sequence[object], prompt: list[int], **request: object) -> list[dict[str, Any]]:
        """The same completion under each choice of ``outrider``, all at once."""
        with ThreadPoolExecutor(len(choices)) as pool:
            return list(pool.map(lambda choice: self.complete(prompt, outrider=choice, **request), choices))

    def get(self, path: str) -> dict[str, Any]:
        """One JSON answer; empty if there is none."""
        try:
            response = httpx.get(f"{self.url}{path}", timeout=_ANSWER_WITHIN_S, verify=PLAIN)
        except httpx.HTTPError:
            return {}
        return dict(response.json()) if response.status_code == httpx.codes.OK else {}

    def drafters(self, state: str | None = None) -> list[dict[str, Any]]:
        """What the fleet says of its drafters, or of those in a state; none while it does not answer."""
        known = self.get("/status").get("drafters", [])
        return [drafter for drafter in known if state in (None, drafter["state"])]

    def drafter(self, name: str) -> Any:
        """A drafter actor's handle."""
        return ray.get_actor(name, namespace=self.config.cluster.namespace)

    @cached_property
    def _inquirer(self) -> Any:
        actor: Any = ray.remote(Inquirer).options(num_cpus=0, max_restarts=-1)
        return actor.remote("Coordinator", APP_NAME)

    def ask_coordinator(self, method: str) -> Any:
        """What a coordinator answers."""
        return ray.get(self._inquirer.ask.remote(method, _ANSWER_WITHIN_S), timeout=2 * _ANSWER_WITHIN_S)

    def coordinators(self) -> list[dict[str, Any]]:
        """What each coordinator and its verifier hold now; none while they cannot all be asked."""
        try:
            asked = self._inquirer.ask_all.remote("held", _ANSWER_WITHIN_S)
            answers: list[dict[str, Any]] = ray.get(asked, timeout=2 * _ANSWER_WITHIN_S)
        except RayError:  # GetTimeoutError is one as well
            return []
        return answers

    def held(self) -> dict[str, object]:
        """What is held for responses, by the word of each who holds it, asked now; empty once nothing is.

        Devices that dialled in are asked by the fleet alone (``held_by_devices``).
        """
        drafters, coordinators = self.drafters(), self.coordinators()
        found: dict[str, object] = {} if drafters and coordinators else {_SILENT: "do not answer"}
        for i, coordinator in enumerate(coordinators):
            found |= {f"{what} of coordinator {i}": count for what, count in coordinator.items()}
        for each in drafters:
            name = each["name"]
            found[f"leases on {name}"] = each["generations"]
            if each["state"] == "ready" and each.get("dialled") is None:
                actor = self.drafter(name)
                sessions, usage = ray.get([actor.held.remote(), actor.usage.remote()], timeout=_ANSWER_WITHIN_S)
                found |= {f"sessions of {name}": len(sessions.generations), f"generations in {name}": usage.generations}
                found[f"KV blocks in {name}"] = usage.used_blocks
        return {who: what for who, what in found.items() if what != 0}

    def held_by_devices(self) -> dict[str, int]:
        """How many sessions each device that dialled in had when the fleet asked it last; empty once there are none."""
        return {each["name"]: each["held"] for each in self.drafters() if each.get("dialled") and each["held"]}

    def check_released(self, within_s: float = PACE.sweep_s) -> None:
        """Nothing may be held for the responses that have ended.

        Their last messages may be under way still: nobody waits for a release, and a coordinator's closing waits for a
        call to travel with. But not for long: by itself the fleet finds out only in its second sweep. Time in which
        nobody can be asked, on a busy machine, says nothing of that.
        """
        began_s = time.monotonic()
        give_up_at_s = began_s + within_s
        while held := self.held():
            if _SILENT in held and time.monotonic() < began_s + _SILENT_WITHIN_S:
                give_up_at_s = time.monotonic() + within_s
            assert time.monotonic() < give_up_at_s, held
            time.sleep(0.1)

    def check_reported_released(self) -> None:
        """The same of a service whose owners cannot be asked: what coordinators report and the fleet found out last."""

        def released() -> bool:
            counts = [drafter["generations"] + (drafter["held"] or 0) for drafter in self.drafters("ready")]
            for report in self.get("/status")["coordinators"]:
                counts += [report[what] for what in ("generations", "queued_generations", "queued_blocks")]
                counts += [report["kv"][what] for what in ("generations", "used_blocks")]
            return not any(counts)

        eventually(released, 2 * PACE.sweep_s)
        assert not self.events(*HEALERS), "all were told, nobody had to find out"

    def exported(self, metric: Metric, **labels: str) -> float:
        """The sum over a metric's series with these labels, as Ray exports it for Prometheus on every node."""
        nodes: Any = ray.nodes
        pages = [f"http://127.0.0.1:{node['MetricsExportPort']}/metrics" for node in nodes()]
        return sum(scraped(page, f"ray_{metric.name}", **labels) for page in pages)

    def events(self, *names: str, **fields: object) -> list[dict[str, Any]]:
        """What was logged under these names with these fields, oldest first."""
        lines = (line for file in self.logs.glob("worker*.err") for line in file.read_text().splitlines())
        events = [json.loads(line) for line in lines if line.startswith("{") and any(name in line for name in names)]
        found = (each for each in events if each.get("event") in names and fields.items() <= each.items())
        return sorted(found, key=lambda each: str(each["time"]))

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

    def kill(self, process: str, most: int = 100, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill processes at once, as a power cut would, or send them another signal; at least one has to run."""
        pids = self.pids(process)[:most]
        assert pids, f"no {process} runs"
        for pid in pids:
            os.kill(pid, number)


@contextlib.contextmanager
def started(config: Config) -> Iterator[Service]:
    """Run a cluster of this process's own while the block is open; its owners can then be asked through Ray."""
    config = replace(config, http=replace(config.http, port=free_port()))
    with running(config) as url:
        context = ray.get_runtime_context()
        yield Service(url, config, Path(context.get_temp_dir()) / context.get_session_name() / "logs")


@contextlib.contextmanager
def served(folder: Path, settings: Mapping[str, object], arguments: Sequence[str] = ()) -> Iterator[Service]:
    """Run ``outrider serve`` with these settings while the block is open; ``folder`` takes its files, and output."""
    port = free_port()
    file = folder / "outrider.yaml"
    file.write_text(yaml.safe_dump({**settings, "http": {"port": port}}))
    output = folder / "serve.out"
    with output.open("w") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "cluster.cli", "serve", "--config", str(file), *arguments],
            stdout=stdout,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )
        try:
            eventually(lambda: "Ready:" in output.read_text() or process.poll() is not None, START_WITHIN_S)
            said = output.read_text()
            assert "Ready:" in said, said
            (logs,) = [line.removeprefix("Logs: ") for line in said.splitlines() if line.startswith("Logs: ")]
            yield Service(f"http://127.0.0.1:{port}", load_config(str(file)), Path(logs), process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def scraped(page: str, name: str, **labels: str) -> float:
    """The sum over a metric's series with these labels on a page for Prometheus; 0 without any."""
    text = httpx.get(page, timeout=_ANSWER_WITHIN_S, verify=PLAIN).raise_for_status().text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return float(sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items()))


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
