"""The embedded cluster: a private Ray on this machine with simulated devices, and the application on it."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import HTTPOptions, ProxyLocation

from actors.fleet import fleet_handle
from outrider.config import Config
from outrider.errors import ConfigError, GenerationFailedError
from outrider.models.registry import load_tokenizer
from serve_app.app import app_cpus, build_app

APP_NAME = "outrider"
_DRAFTERS_DEADLINE_S = 60.0
_POLL_S = 0.2


def serve_locally(config: Config) -> None:
    """Start everything, print the URL, wait for Ctrl-C, end everything."""
    with running(config, show=lambda line: print(line, flush=True)) as url:
        print(f"Ready: {config.model.public_name} at {url}/v1 - Ctrl-C ends it", flush=True)
        _wait_for_signal()
        print("Stopping", flush=True)


@contextmanager
def running(config: Config, show: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """Run the embedded cluster while the block is open.

    Args:
        config: what to run.
        show: told in a line what is being done.

    Yields:
        The base URL, e.g. ``http://127.0.0.1:8000``.

    Raises:
        ConfigError: the port is taken.
        ModelUnavailableError: a model can neither be found nor fetched.
        GenerationFailedError: the application did not come up.
    """
    _check_port(config)
    show(f"Models: {config.model.target} and {len(config.drafters)} drafter group(s)")
    load_tokenizer(config.model.target)  # fetches and converts the embedded target, with progress bars
    try:
        show("Ray: starting a private cluster on this machine")
        _start_ray(config)
        _check_room(config)
        show("Serve: starting ingress and coordinator; the verifier loads its model")
        serve.start(
            proxy_location=ProxyLocation.HeadOnly,
            http_options=HTTPOptions(host=config.http.host, port=config.http.port),
        )
        try:
            serve.run(build_app(config), name=APP_NAME, route_prefix="/")
        except RuntimeError as error:
            raise GenerationFailedError(f"the application did not come up: {error}") from error
        ready = _await_drafters(config)
        show(f"Drafters: {ready} ready")
        yield f"http://{config.http.host}:{config.http.port}"
    finally:
        ray.shutdown()


def _start_ray(config: Config) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # what it does is told by ``show``
    ray.init(
        address="local",
        namespace=config.cluster.namespace,
        num_cpus=config.cluster.num_cpus,
        resources=config.custom_resources,
        object_store_memory=config.cluster.object_store_mib * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _check_room(config: Config) -> None:
    """Find out now that something can never be placed; Ray would wait for it without a word.

    Raises:
        ConfigError: the configuration claims more than the cluster has.
    """
    verifiers, groups = config.verifiers, config.drafters
    needed = {
        "CPU": app_cpus(config) + sum(group.count * group.num_cpus for group in groups),
        "GPU": verifiers.count * verifiers.num_gpus + sum(group.count * group.num_gpus for group in groups),
    }
    resources: Any = ray.cluster_resources  # untyped
    found: dict[str, float] = resources()
    for name, field in (("CPU", "cluster.num_cpus"), ("GPU", "verifiers.num_gpus")):
        if needed[name] > found.get(name, 0.0):
            raise ConfigError(field, f"{needed[name]:g} {name}s for all verifiers and drafters", found.get(name, 0.0))


def _await_drafters(config: Config) -> int:
    """Wait until all drafters are ready, or as long as that may take; the service works without them meanwhile."""
    fleet = fleet_handle(config.drafters, config.model.target, config.cluster.namespace)
    give_up_at_s = time.monotonic() + _DRAFTERS_DEADLINE_S
    ready = 0
    while ready < config.drafter_count and time.monotonic() < give_up_at_s:
        time.sleep(_POLL_S)
        with suppress(RayError):  # a fleet that is still starting, or restarting, is asked again
            ready = len(ray.get(fleet.loads.remote(), timeout=_DRAFTERS_DEADLINE_S))
    return ready


def _check_port(config: Config) -> None:
    """Find a taken port before anything is started."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.http.host, config.http.port))
        except OSError as error:
            raise ConfigError(
                "http.port", f"a free port on {config.http.host} ({error.strerror}); set another one", config.http.port
            ) from error


def _wait_for_signal() -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
