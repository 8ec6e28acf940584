"""One embedded cluster for all tests of this folder: real Ray, real Serve, real models, real HTTP."""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
import ray
import torch

from actors.fleet import FLEET_NAME
from cluster.local import running
from outrider.config import load_config
from outrider.config_schema import Config
from outrider.models.registry import LoadedModel, load_target

K_MAX = 16
DRAFTERS = 3


@dataclass(frozen=True)
class Service:
    """The running service and the configuration it was started with."""

    url: str
    config: Config

    def post(self, path: str, body: dict[str, object]) -> dict[str, object]:
        """Send one request and return the JSON answer."""
        response = httpx.post(f"{self.url}{path}", json=body, timeout=300)
        assert response.status_code == httpx.codes.OK, response.text
        answer = response.json()
        assert isinstance(answer, dict)
        return answer

    def get(self, path: str) -> dict[str, Any]:
        """One JSON answer; empty if there is none."""
        response = httpx.get(f"{self.url}{path}", timeout=60)
        return dict(response.json()) if response.status_code == httpx.codes.OK else {}

    def ready(self) -> dict[str, Any]:
        """What the coordinator says of itself; empty while it does not answer."""
        return self.get("/ready")

    def drafter_loads(self) -> dict[str, int]:
        """Generations leased to each ready drafter, as the fleet says."""
        fleet = ray.get_actor(FLEET_NAME, namespace=self.config.cluster.namespace)
        loads: Any = ray.get(fleet.loads.remote(), timeout=30)
        return dict(loads)


def eventually(holds: Callable[[], bool], within_s: float) -> None:
    """Poll until a condition holds; fails with the condition's name after ``within_s`` seconds."""
    give_up_at_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up_at_s, f"not within {within_s:g} s"
        time.sleep(0.1)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A cluster with several drafters and so little KV memory that generations evict each other."""
    config = load_config()
    config = replace(
        config,
        drafters=(replace(config.drafters[0], count=DRAFTERS),),
        verifiers=replace(config.verifiers, kv_budget_mib=20),
        http=replace(config.http, port=free_port()),
    )
    with running(config) as url:
        yield Service(url, config)


@pytest.fixture(scope="session")
def target() -> LoadedModel:
    """The target alone, on plain transformers."""
    torch.set_num_threads(1)
    return load_target("embedded", dtype="float32", device="cpu")
