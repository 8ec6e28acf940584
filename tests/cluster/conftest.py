"""One embedded cluster for all tests that can share it: real Ray, real Serve, real models, real HTTP."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from outrider.config.reading import load_config
from outrider.config.schema import Config, TargetDType
from outrider.models.loading import LoadedModel, load_target
from tests.cluster.served import Service, started

DRAFTERS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with a cluster of their own come first and end it: no two clusters run beside each other."""
    items.sort(key=lambda item: not hasattr(getattr(item, "module", None), "service"))


def crowded(config: Config, dtype: TargetDType, kv_budget_mib: int) -> Config:
    """Several drafters, and KV memory for a few generations."""
    return replace(
        config,
        model=replace(config.model, dtype=dtype),
        drafters=(replace(config.drafters[0], count=DRAFTERS),),
        verifiers=replace(config.verifiers, kv_budget_mib=kv_budget_mib),
    )


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A cluster in float32 with several drafters, and so little KV memory that generations evict each other."""
    with started(crowded(load_config(), "float32", kv_budget_mib=20)) as service:
        yield service


@pytest.fixture(scope="session")
def target() -> LoadedModel:
    """The target alone, on plain transformers."""
    torch.set_num_threads(1)
    return load_target("embedded", dtype="float32", device="cpu")
