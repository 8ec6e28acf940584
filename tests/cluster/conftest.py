"""One embedded cluster for all tests that can share it: real Ray, real Serve, real models, real HTTP."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lab.training.pair_files import save_head
from outrider.config.drafters import RoundLogConfig, StoppingConfig
from outrider.config.reading import load_config
from outrider.config.schema import Config, TracingConfig
from outrider.config.values import TargetDType
from outrider.models.loading import LoadedModel, load_drafter, load_target, load_target_facts
from tests.cluster.clusters import Clusters
from tests.cluster.poison import HOOK
from tests.cluster.served import Service, started
from tests.collector import Collector, collecting
from tests.unit.verification.random_head import head_of

DRAFTERS = 3
os.environ.setdefault("RAY_RUNTIME_ENV_HOOK", HOOK)
os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "200")  # milliseconds
_STATUS = pytest.StashKey[int]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with a cluster of their own come first and end it, then those that share one (``CLUSTER``), by its name.

    No two clusters run beside each other.
    """

    def order(item: pytest.Item) -> tuple[bool, str]:
        module = getattr(item, "module", None)
        return not hasattr(module, "service"), str(getattr(module, "CLUSTER", ""))

    items.sort(key=order)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave at once, after all that pytest does and reports: clusters have ended, their fixtures saw to that.

    Threads of Ray's GCS client and of its gRPC live on behind ``ray.shutdown``, and may crash on what the end of a
    process destroys before them. What the tests found would be lost by it.
    """
    status = config.stash.get(_STATUS, None)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep what the tests' end is to say."""
    session.config.stash[_STATUS] = int(exitstatus)


def logging(config: Config, folder: Path) -> Config:
    """With drafters that log their rounds."""
    group = replace(config.drafters[0], round_log=RoundLogConfig(str(folder)))
    return replace(config, drafters=(group,))


def crowded(config: Config, dtype: TargetDType, kv_budget_mib: int) -> Config:
    """Several drafters, which stop behind a token that is likely to be rejected, and KV for few generations of many."""
    stopping = StoppingConfig("send_and_stop")
    return replace(
        config,
        model=replace(config.model, dtype=dtype),
        admission=replace(config.admission, enabled=False),  # who would not fit into KV waits for it elsewhere
        drafters=(replace(config.drafters[0], count=DRAFTERS, stopping=stopping),),
        verifiers=replace(config.verifiers, kv_budget_mib=kv_budget_mib),
    )


def judged(config: Config, file: Path) -> Config:
    """With a head of random weights for the embedded pair: it lets about every second mismatch pass."""
    target = load_target_facts("embedded")
    drafter = load_drafter("embedded", "embedded", dtype="float32", device="cpu")
    width = drafter.model.config.hidden_size
    head = head_of(width, width)
    info = replace(head.info, target_hash=target.model_hash, drafter_hash=drafter.model_hash)
    save_head(file, head.decisions.weights, info)
    return replace(config, drafters=(replace(config.drafters[0], decision_head=str(file)),))


def traced(config: Config, collector: Collector) -> Config:
    """Where those are traced whose callers say so."""
    tracing = TracingConfig(enabled=True, endpoint=collector.url, sample_ratio=0.0)
    return replace(config, tracing=tracing)


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Where the shared cluster's spans go."""
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """Those that modules share."""
    clusters = Clusters()
    yield clusters
    clusters.end()


@pytest.fixture(scope="session")
def service(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Service:
    """A cluster in float32 with several drafters, and so little KV memory that generations evict each other."""
    config = judged(load_config(), tmp_path_factory.mktemp("head") / "head.safetensors")
    config = logging(config, tmp_path_factory.mktemp("rounds"))
    return clusters.get("shared", lambda: started(traced(crowded(config, "float32", kv_budget_mib=20), collector)))


@pytest.fixture(scope="session")
def target() -> LoadedModel:
    """The target alone, on plain transformers."""
    torch.set_num_threads(1)
    return load_target("embedded", dtype="float32", device="cpu")
