"""One embedded cluster for all tests that can share it: real Ray, real Serve, real models, real HTTP."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from outrider.config.reading import load_config
from outrider.models.loading import LoadedModel, load_target
from tests.cluster.served import Service, started

DRAFTERS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with a cluster of their own come first and end it: no two clusters run beside each other."""
    items.sort(key=lambda item: not hasattr(getattr(item, "module", None), "service"))


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A cluster with several drafters and so little KV memory that generations evict each other."""
    config = load_config()
    drafters = (replace(config.drafters[0], count=DRAFTERS),)
    with started(replace(config, drafters=drafters, verifiers=replace(config.verifiers, kv_budget_mib=20))) as service:
        yield service


@pytest.fixture(scope="session")
def target() -> LoadedModel:
    """The target alone, on plain transformers."""
    torch.set_num_threads(1)
    return load_target("embedded", dtype="float32", device="cpu")
