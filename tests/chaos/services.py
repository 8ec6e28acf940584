"""Services that chaos is tried on: real clusters of several coordinators and devices, of which some are not trusted.

Some devices are actors, and others dial in to gateways.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any

from ray.serve.config import ProxyLocation
from ray.serve.context import _get_global_client  # Serve tells its replicas' ids nowhere else

from cluster.application import APP_NAME, bring_up
from outrider.config.reading import load_config
from outrider.config.schema import Config, ToolFormatName
from tests.chaos.agents.models import with_form
from tests.chaos.devices import dialling, with_own_gateways
from tests.chaos.head import HeadRestarts, remembered
from tests.chaos.injecting import Injector
from tests.chaos.links import Loopback
from tests.chaos.planted.sitecustomize import OVER_RAY
from tests.cluster.conftest import judged
from tests.cluster.served import Service, started

COORDINATORS = 2
_PLANTED = Path(__file__).parent / "planted"
_ROOT = Path(__file__).parents[2]


class Layout(StrEnum):
    """How clients get in."""

    ONE_DOOR = "one_door"  # the only ingress listens by itself
    PROXIED = "proxied"  # two ingresses behind a proxy: the application can be updated while it serves


def config_of(layout: Layout, folder: Path) -> Config:
    """Two coordinators, a trusted device with a decision head and two that are not trusted; devices always draft.

    Deadlines are short (those that are no settings are planted), so that a run meets those on both sides of them.
    """
    config = judged(load_config(), folder / "head.safetensors")
    device = config.drafters[0]
    limits = replace(
        config.limits,
        drafter_deadline_s=2.0,
        verifier_deadline_s=8.0,
    )
    return replace(
        config,
        model=replace(config.model, dtype="float32"),
        verifiers=replace(config.verifiers, count=COORDINATORS),
        drafters=(
            replace(device, name="lab", trust="trusted"),
            replace(device, name="visitors", trust="untrusted", count=2),
        ),
        speculation=replace(config.speculation, window=3),
        limits=limits,
        ingress=replace(config.ingress, count=2 if layout is Layout.PROXIED else 1),
        cluster=replace(config.cluster, num_cpus=24),
    )


@dataclass(frozen=True, slots=True)
class UnderTest:
    """A service, and who strikes it."""

    service: Service
    injector: Injector
    folder: Path


@contextmanager
def under_test(layout: Layout, folder: Path, form: ToolFormatName = "hermes") -> Iterator[UnderTest]:
    """Run a service with planted faults while the block is open; its model writes calls in this form."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.sock"):
        file.unlink()
    over_ray = layout is Layout.PROXIED
    (folder / OVER_RAY).unlink(missing_ok=True)
    if over_ray:
        (folder / OVER_RAY).touch()
    os.environ["OUTRIDER_CHAOS"] = str(folder)
    os.environ.pop("RAY_RUNTIME_ENV_HOOK", None)  # of other tests, which plant something else
    os.environ["PYTHONPATH"] = os.pathsep.join((str(_PLANTED), str(_ROOT)))
    config = with_own_gateways(with_form(config_of(layout, folder), form, folder / "model"), folder / "devices")
    with remembered(folder) as can_restart, ExitStack() as ends, started(config) as service:
        ends.enter_context(dialling(config, folder / "devices"))
        update = _Updates(service.config) if layout is Layout.PROXIED else None
        loopback = Loopback() if Loopback.available() else None
        restart = HeadRestarts(service) if can_restart else None
        if restart is not None:
            ends.callback(restart.end)
        injector = Injector(service, folder, loopback, update, restart, over_ray=over_ray)
        yield UnderTest(service, injector, folder)


class _Updates:
    """Versions of the application, one after the other, which differ by nothing else."""

    def __init__(self, config: Config) -> None:
        self._config, self._lock = config, Lock()

    def __call__(self) -> str:
        """Bring up the next one; how it is known that it serves."""
        with self._lock:  # Serve packs an application by one thread of a process at a time
            before, began_s = replicas_running(), time.monotonic()
            bring_up(self._config, ProxyLocation.HeadOnly, show=lambda _: None, restart=True)
        replaced = before - replicas_running()
        return f"{len(replaced)} replicas were replaced in {time.monotonic() - began_s:.0f} s" if replaced else ""


def replicas_running() -> frozenset[str]:
    """Ids of the application's replicas that serve."""
    client: Any = _get_global_client()
    deployments = client.get_serve_details()["applications"][APP_NAME]["deployments"]
    return frozenset(
        replica["replica_id"]
        for deployment in deployments.values()
        for replica in deployment["replicas"]
        if replica["state"] == "RUNNING"
    )
