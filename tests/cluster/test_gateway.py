"""A service drafts with a device that dialled in: the one line that it prints is all that the device is told."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors.gateway_beats import GRACE_S
from cluster.own_gateway import GROUP, with_gateway
from outrider.config.gateway import GatewayConfig
from outrider.config.reading import load_config
from tests.cluster.served import Service, eventually, free_port, started

DRAFTER = f"drafter-{GROUP}-0"
_WITHIN_S = 240.0
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("device")


@pytest.fixture(scope="module")
def service(home: Path) -> Iterator[Service]:
    """No drafter is in the cluster."""
    config = load_config()
    gateway = GatewayConfig(port=free_port(), host="127.0.0.1", address="127.0.0.1")
    config = replace(config, gateway=gateway, drafters=(replace(config.drafters[0], count=0),))
    with started(config) as service:
        _, line = with_gateway(config)
        assert line is not None
        (home / "line").write_text(line)
        yield service


def dialled(home: Path) -> "subprocess.Popen[bytes]":
    """Run on a device what the service has printed."""
    edge = shlex.join((sys.executable, "-m", "edge.main"))
    line = (home / "line").read_text().replace("outrider-edge", edge)
    script = f"set -e; {line.replace(f'; {edge}', f'; exec {edge}')}"
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "XDG_CACHE_HOME": str(home / "cache")}
    return subprocess.Popen(["bash", "-c", script], cwd=home, env=environment)  # noqa: S607 (the line is for one)


def state(service: Service) -> list[str]:
    return [drafter["state"] for drafter in service.drafters()]


def helps(service: Service) -> bool:
    usage = service.complete(PROMPT, temperature=0, outrider={"window": 4, "lookup": False})["usage"]["outrider"]
    return bool(usage["accepted_tokens"])


def test_a_device_drafts_and_changes_no_answer(service: Service, home: Path) -> None:
    device = dialled(home)
    try:
        eventually(lambda: state(service) == ["ready"], _WITHIN_S)
        eventually(lambda: helps(service), _WITHIN_S)
        for sampling in ({"temperature": 0}, {"temperature": 0.8, "seed": 5}):
            answers = [
                service.complete(PROMPT, **sampling, outrider=choice)["choices"][0]["text"]
                for choice in ({"window": 0, "lookup": False}, {"window": 4, "lookup": False})
            ]
            assert answers[0] == answers[1]
        (drafter,), (gateway,) = service.drafters(), service.get("/status")["gateways"]
        assert (drafter["name"], drafter["dialled"]["gateway"]) == (DRAFTER, gateway["name"])
        eventually(lambda: service.drafters()[0]["dialled"]["up_bits"] > 0, _WITHIN_S)
        os.kill(device.pid, signal.SIGSTOP)
        eventually(lambda: state(service) != ["ready"], GRACE_S)
        assert service.complete(PROMPT, temperature=0)["choices"][0]["text"]
        os.kill(device.pid, signal.SIGCONT)
        eventually(lambda: state(service) == ["ready"], _WITHIN_S)
        eventually(lambda: helps(service), _WITHIN_S)
        device.send_signal(signal.SIGTERM)
        device.wait(_WITHIN_S)
        eventually(lambda: state(service) == [], _WITHIN_S)
    finally:
        device.kill()
        device.wait()


def test_a_gateway_and_a_fleet_that_are_killed_come_back_and_so_do_devices(service: Service, home: Path) -> None:
    device = dialled(home)
    try:
        eventually(lambda: state(service) == ["ready"], _WITHIN_S)
        service.kill("GatewayActor")
        eventually(lambda: state(service) == ["ready"] and helps(service), _WITHIN_S)
        known = service.drafters()[0]["name"]
        service.kill("FleetActor")
        eventually(lambda: state(service) == ["ready"] and helps(service), _WITHIN_S)
        assert [drafter["name"] for drafter in service.drafters()] == [known]
    finally:
        device.kill()
        device.wait()
