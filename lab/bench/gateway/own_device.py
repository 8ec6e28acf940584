"""The embedded service with a gateway, and a real device on this machine in place of its drafters."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from cluster.local import running
from cluster.own_gateway import with_gateway
from lab.bench.harness.server import free_port
from outrider.config.gateway import GatewayConfig
from outrider.config.schema import Config

_READY_WITHIN_S = 120.0
_ENDS_WITHIN_S = 10.0


@contextmanager
def running_with_own_device(config: Config) -> Iterator[str]:
    """Run it while the block is open; yields its URL once the device may draft."""
    port = free_port()
    gateway = GatewayConfig(port=port, host="127.0.0.1", address="127.0.0.1")
    without = replace(config, gateway=gateway, drafters=(replace(config.drafters[0], count=0),))
    with TemporaryDirectory(prefix="outrider-device-") as name:
        folder = Path(name)
        whole, _ = with_gateway(without, folder)
        with running(whole) as url, _device(folder, port):
            _await_ready(url)
            yield url


@contextmanager
def _device(folder: Path, port: int) -> Iterator[None]:
    options = ["--ca", str(folder / "ca.pem"), "--key-file", str(folder / "device.key")]
    process = subprocess.Popen(
        [sys.executable, "-m", "edge.main", "--connect", f"wss://127.0.0.1:{port}", *options],
        env=os.environ | {"CACHE_DIRECTORY": str(folder / "cache")},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(_ENDS_WITHIN_S)


def _await_ready(url: str) -> None:
    give_up_at_s = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < give_up_at_s:
        drafters = httpx.get(f"{url}/status", timeout=30.0).json()["drafters"]
        if any(drafter["state"] == "ready" for drafter in drafters):
            return
        time.sleep(0.2)
    raise TimeoutError(f"needs a device that is ready within {_READY_WITHIN_S:g} s")
