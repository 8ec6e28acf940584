"""Devices join a cluster that already serves, leave it all at once, and come back: the responses go on throughout."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.served import PLAIN, eventually, free_ports
from tests.cluster.streams import Streamed, streams, told
from tests.deploy.conftest import RAY, ROOT, Head

pytestmark = pytest.mark.cluster

DEVICES, CLIENTS = 2, 4
LONG, SHORT = 250, 60  # tokens: devices take a while to join, but leave in a moment
_WITHIN_S = 120.0
_CONFIG = """
drafters: [{{name: edge, count: {devices}, resources: {{board: 1}}}}]
speculation: {{window: 2, lookup_window: 0}} # what is accepted comes from a device
http: {{port: {port}}}
"""


@pytest.fixture(scope="module")
def url(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service on a cluster without any of the devices it is configured for."""
    (port,) = free_ports(1)
    file = tmp_path_factory.mktemp("joining") / "my.yaml"
    file.write_text(_CONFIG.format(devices=DEVICES, port=port), encoding="utf-8")
    command = ("deploy", "--address", head.address, "--config", str(file))
    done = head.outrider(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Drafters: 0 of {DEVICES} ready" in done.stdout
    yield f"http://127.0.0.1:{port}"
    assert head.outrider(*command, "--remove").returncode == 0


@contextmanager
def devices(head: Head, folder: Path) -> Iterator[Callable[[], None]]:
    """A node with the devices joins; calling what is yielded cuts its power."""
    (agent,) = free_ports(1)
    command = [str(RAY), "start", "--block", f"--address={head.address}", "--num-cpus=0"]
    command += [f'--resources={{"board": {DEVICES}}}', f"--dashboard-agent-listen-port={agent}"]
    with (folder / "node.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=head.environment, stdout=log, stderr=log, start_new_session=True
        )

    def cut() -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)

    try:
        yield cut
    finally:
        cut()


def states(url: str) -> list[str]:
    """The drafters' states."""
    status: Any = httpx.get(f"{url}/status", timeout=60, verify=PLAIN).json()
    return [drafter["state"] for drafter in status["drafters"]]


def accepted(responses: list[Streamed]) -> int:
    """Draft tokens that were accepted."""
    return sum(response.usage["outrider"]["accepted_tokens"] for response in responses)


def begins(short: list[Streamed], whole: list[Streamed]) -> bool:
    """Whether these are the beginnings of the responses to the same requests for more tokens."""
    return all(
        long.text.startswith(brief.text) and long.token_logprobs[:SHORT] == brief.token_logprobs
        for brief, long in zip(short, whole, strict=True)
    )


def test_devices_join_leave_and_come_back(head: Head, url: str, tmp_path: Path) -> None:
    assert states(url) == ["starting"] * DEVICES
    alone = streams(url, clients=CLIENTS, tokens=LONG)
    assert accepted(alone) == 0
    with devices(head, tmp_path) as cut:
        joined = streams(
            url, lambda: eventually(lambda: "ready" in states(url), _WITHIN_S), clients=CLIENTS, tokens=LONG
        )
        assert told(joined) == told(alone)
        eventually(lambda: states(url) == ["ready"] * DEVICES, _WITHIN_S)
        left = streams(url, cut, clients=CLIENTS, tokens=SHORT)
        assert begins(left, alone)
        assert accepted(left) > 0
        eventually(lambda: "ready" not in states(url), _WITHIN_S)
    with devices(head, tmp_path):
        eventually(lambda: states(url) == ["ready"] * DEVICES, _WITHIN_S)
        back = streams(url, clients=CLIENTS, tokens=SHORT)
        assert begins(back, alone)
        assert accepted(back) > 0
