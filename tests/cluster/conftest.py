"""One embedded cluster for all tests of this folder: real Ray, real Serve, real models, real HTTP."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
import torch

from cluster.local import running
from outrider.config.reading import load_config
from outrider.config.schema import Config
from outrider.models.loading import LoadedModel, load_target
from tests.cluster.served import free_port

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
