"""The control service on the head dies and comes back, with Redis as its memory: responses go on throughout."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.served import PLAIN, eventually, free_ports
from tests.cluster.streams import Streamed, streams, told
from tests.deploy.conftest import Head, of_session, started_head
from tests.deploy.test_deploy import completes

pytestmark = [pytest.mark.cluster, pytest.mark.long]

CLIENTS, TOKENS = 3, 60
_GCS = "gcs_server"
_WITHIN_S = 180.0
_MODEL = "smollm2-135m-instruct"


class ControlService:
    """Ray's, which whoever looks after the head would start again; here these tests do."""

    def __init__(self, head: Head) -> None:
        """It runs."""
        self._head = head
        process = Path(f"/proc/{head.pid(_GCS)}")
        self._command = process.joinpath("cmdline").read_bytes().decode().split("\0")[:-1]
        pairs = process.joinpath("environ").read_bytes().decode().split("\0")[:-1]
        self._environment = dict(pair.split("=", 1) for pair in pairs)
        self._again: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """At once, as a power cut would."""
        pid = self._head.pid(_GCS) if self._again is None else self._again.pid
        os.kill(pid, signal.SIGKILL)
        if self._again is not None:
            self._again.wait(timeout=60)
            self._again = None
        eventually(lambda: pid not in of_session(self._head.session), 60.0)

    def start(self) -> None:
        """As it ran before."""
        null = subprocess.DEVNULL
        self._again = subprocess.Popen(self._command, env=self._environment, stdout=null, stderr=null)

    def restart(self) -> None:
        """Both."""
        self.kill()
        self.start()

    def end(self) -> None:
        """Of what these tests started."""
        if self._again is not None:
            self._again.kill()
            self._again.wait(timeout=60)


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis that forgets everything when it ends; yields its address."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("needs redis-server (Debian package of that name)")
    (port,) = free_ports(1)
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        eventually(lambda: b"Ready to accept" in (folder / "redis.log").read_bytes(), 60.0)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """A head whose control service keeps what it knows in Redis, and whose processes wait for it."""
    with redis(tmp_path_factory.mktemp("redis")) as address:
        variables = {"RAY_REDIS_ADDRESS": address, "RAY_gcs_rpc_server_reconnect_timeout_s": "600"}
        with started_head(variables, supervised=False) as head:
            yield head


@pytest.fixture(scope="module")
def url(durable: Head) -> str:
    """The service."""
    (port,) = free_ports(1)
    changes = (f"http.port={port}", "speculation.window=2", "speculation.lookup_window=0")
    options = [part for change in changes for part in ("--set", change)]
    done = durable.outrider("deploy", "--address", durable.address, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Drafters: 1 of 1 ready" in done.stdout
    return f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def undisturbed(url: str) -> list[Streamed]:
    responses = streams(url, clients=CLIENTS, tokens=TOKENS)
    assert accepted(responses) > 0
    return responses


@pytest.fixture
def control(durable: Head) -> Iterator[ControlService]:
    control = ControlService(durable)
    yield control
    control.end()


def accepted(responses: list[Streamed]) -> int:
    """Draft tokens that were accepted."""
    return sum(response.usage["outrider"]["accepted_tokens"] for response in responses)


def states(url: str) -> list[str]:
    """The drafters' states; none while nobody can tell."""
    status: Any = httpx.get(f"{url}/status", timeout=60, verify=PLAIN)
    return [drafter["state"] for drafter in status.json()["drafters"]] if status.is_success else []


def test_responses_go_on_while_it_is_away_and_afterwards_all_is_as_before(
    durable: Head, url: str, undisturbed: list[Streamed], control: ControlService
) -> None:
    """First it is away until the responses have ended, then it comes back in the middle of others."""
    away = streams(url, control.kill, clients=CLIENTS, tokens=TOKENS)
    assert told(away) == told(undisturbed)
    assert _GCS not in {Path(f"/proc/{pid}/exe").resolve().name for pid in of_session(durable.session)}
    completes(url, _MODEL)
    control.start()
    back = streams(url, control.restart, clients=CLIENTS, tokens=TOKENS)
    assert told(back) == told(undisturbed)
    completes(url, _MODEL)
    before = drafters(durable)
    (drafter,) = before
    os.kill(drafter, signal.SIGKILL)
    eventually(lambda: drafters(durable) not in ([], before), _WITHIN_S)  # perhaps before the fleet has missed it
    eventually(lambda: states(url) == ["ready"], _WITHIN_S)
    again = streams(url, clients=CLIENTS, tokens=TOKENS)
    assert told(again) == told(undisturbed)
    assert accepted(again) > 0, "a process was started again, which only the control service can have done"


def drafters(head: Head) -> list[int]:
    """Processes of drafters that have loaded their model; Ray names those that load otherwise."""
    return [pid for pid in of_session(head.session) if _runs(pid, "ray::DrafterActor")]


def _runs(pid: int, name: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").startswith(name)
    except OSError:
        return False
