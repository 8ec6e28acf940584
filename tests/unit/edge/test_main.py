"""The device's process: how it ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from outrider.engines.onnx.export import export_drafter
from tests.budgets import ROOT
from tests.unit.actors.coordinator.socket_client import SocketClient
from tests.unit.engines.conftest import loaded, tiny_llama

DEADLINE_S = 60.0
MAIN = "import sys, time, edge.main, edge.host, edge.running, edge.status\n{}\nsys.exit(edge.main.main(sys.argv[1:]))"
BROKEN = """
def step(self, among=None): {}
edge.status.CountingDrafter.step, edge.host._HUNG_S, edge.running._CHECK_S = step, 0.3, 0.1
"""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "edge.sock"


@pytest.fixture
def start(tmp_path: Path, address: Path) -> Iterator[Start]:
    """Start a device in a process, after running some code there."""
    export_drafter(loaded(tiny_llama()), tmp_path / "drafter.onnx")
    processes: list[subprocess.Popen[bytes]] = []

    def started(code: str = "", listen: Path = address, status_s: int = 3600) -> subprocess.Popen[bytes]:
        settings = tmp_path / "edge.toml"
        text = f'drafter = "{tmp_path}/drafter.onnx"\nlisten = "{listen}"\nstatus_s = {status_s}\n'
        settings.write_text(text, encoding="utf-8")
        command = [sys.executable, "-c", MAIN.format(code), "--config", str(settings)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        processes.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment)
        )
        return processes[-1]

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def connected(address: Path, use: Callable[[SocketClient], Awaitable[None]]) -> None:
    async def used() -> None:
        transport = SocketClient("device", lambda: asyncio.open_unix_connection(address))
        await transport.greet(DEADLINE_S)
        try:
            await use(transport)
        finally:
            await transport.disconnect()

    asyncio.run(used())


@pytest.mark.parametrize("waits", [False, True], ids=["as it is", "waiting for connections"])
def test_it_ends_when_told_to_though_a_coordinator_is_connected(waits: bool, start: Start, address: Path) -> None:
    """As of Python 3.12.1 a server's end waits for its connections, which is made so for older ones here."""
    later = """
import asyncio
async def wait_closed(self):
    while self._active_count: await asyncio.sleep(0.01)
asyncio.base_events.Server.wait_closed = wait_closed
"""
    process = start(later if waits else "")

    async def told(_: SocketClient) -> None:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0

    connected(address, told)


@pytest.mark.parametrize("step", ["time.sleep(1e6)", "raise SystemError('cuda error')"], ids=["hangs", "breaks"])
def test_an_engine_that_is_of_no_use_ends_it(step: str, start: Start, address: Path) -> None:
    process = start(BROKEN.format(step))

    async def proved(transport: SocketClient) -> None:
        proving = asyncio.ensure_future(transport.prove(DEADLINE_S))
        status = await asyncio.to_thread(process.wait, DEADLINE_S)
        proving.cancel()
        await asyncio.wait({proving})
        assert status == 1

    connected(address, proved)
    assert process.stderr is not None
    text = process.stderr.read().decode()
    assert "outrider-edge: error: " in text
    assert "Traceback" not in text


def test_a_socket_that_cannot_be_opened_is_told(start: Start, tmp_path: Path) -> None:
    process = start(listen=tmp_path / "missing" / "edge.sock")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert errors.decode().startswith("outrider-edge: error: listen needs a place for a socket, found")


def test_output_that_nobody_reads_does_not_end_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        process = start(status_s=1)
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        for _ in range(5):  # ready, and lines of which two at least were written to nobody
            manager.recv(1000)
    process.terminate()
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, b"")
