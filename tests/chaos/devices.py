"""Devices that dial in to the service under test: processes that are started again when they end, as by systemd."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cluster.own_gateway import with_gateway
from outrider.config.gateway import GatewayConfig
from outrider.config.schema import Config
from tests.cluster.served import free_port

DEVICES, GATEWAYS = 2, 2
_LOOKED_EVERY_S = 0.2
_MAIN = """
import sys
from tests.chaos.links import die_with_parent
from edge.main import main
die_with_parent()
sys.exit(main())
"""


def with_own_gateways(config: Config, folder: Path) -> Config:
    """Return the configuration with gateways of this machine, which share a port; files are in ``folder``."""
    gateway = GatewayConfig(port=free_port(), host="127.0.0.1", address="127.0.0.1", count=GATEWAYS)
    return with_gateway(replace(config, gateway=gateway), folder)[0]


@contextmanager
def dialling(config: Config, folder: Path) -> Iterator[None]:
    """Run them while the block is open; their one key is in ``folder``, beside the gateways' files."""
    over = threading.Event()
    keepers = [threading.Thread(target=_kept, args=(config, folder, i, over), daemon=True) for i in range(DEVICES)]
    for keeper in keepers:
        keeper.start()
    try:
        yield
    finally:
        over.set()
        for keeper in keepers:
            keeper.join()


def _kept(config: Config, folder: Path, index: int, over: threading.Event) -> None:
    """Run one on this thread, whose end it does not outlive."""
    options = ["--ca", str(folder / "ca.pem"), "--key-file", str(folder / "device.key"), "--name", f"device{index}"]
    command = [sys.executable, "-c", _MAIN, "--connect", f"wss://127.0.0.1:{config.gateway.port}", *options]
    environment = os.environ | {"CACHE_DIRECTORY": str(folder / f"device{index}")}
    with (folder / f"device{index}.log").open("ab") as log:
        while not over.is_set():
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            while process.poll() is None and not over.wait(_LOOKED_EVERY_S):
                pass
            process.kill()
            process.wait()
