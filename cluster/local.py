"""The embedded cluster: a private Ray on this machine with simulated devices, and the application on it."""

import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit

import httpx
import ray
from ray.serve.config import ProxyLocation

from actors.ray_internals.core import init_in
from cluster.application import (
    APP_NAME,
    OPEN_TO_ALL,
    alive_nodes,
    await_drafters,
    bring_up,
    first_steps,
    node_resources,
    verifier_line,
)
from cluster.capacity_check import drafter_claims, misfit, service_claims
from cluster.monitoring.files import DISCOVERY_FILE
from cluster.own_gateway import with_gateway
from cluster.private_ray import (
    check_address,
    check_authentication,
    listening_on_loopback,
    private_folder,
    protect_token,
)
from cluster.session_reaper import dismiss, start_reaper
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.contracts.requests import SamplingParams
from outrider.engines.registry import VERIFIERS
from outrider.models.generation_config import read_sampling_defaults
from outrider.models.tokenizer import load_tokenizer
from serve_app.app import ROUTER

__all__ = ["APP_NAME", "running", "serve_locally"]

_METRICS_DEADLINE_S = 5.0
_ENDING = (signal.SIGINT, signal.SIGTERM)
OBJECT_STORE_BYTES = 100 * 2**20
_TOKEN, _TOKEN_PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def serve_locally(config: Config) -> None:
    """Start everything, print the URL, wait for Ctrl-C, then shut down."""
    end_on_signals()
    with running(config, show=lambda line: print(line, flush=True)) as url:
        end_on_signals()  # after Ray, which sets a handler of its own
        print(f"Logs: {_session() / 'logs'}", flush=True)
        if (metrics := _metrics_url()) is not None:
            try:
                file = announce_metrics(metrics, private_folder())
                shown = f"for Prometheus in {file}"
            except OSError as error:  # the service works without it
                shown = f"not announced to Prometheus: {error}"
            print(f"Metrics: {metrics} ({shown})", flush=True)
        print(f"Ready: {config.model.public_name} at {url}/v1 - Ctrl-C ends it", flush=True)
        print("\n".join(first_steps(config, url)), flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
        print("Stopping", flush=True)


def end_on_signals() -> None:
    """The first signal raises ``KeyboardInterrupt``, which ends the service in order; the next kills this process.

    The second works even where the process hangs.
    """

    def first(*_: object) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)  # the kernel's handler: Python's would wait for C code to return
        raise KeyboardInterrupt

    for number in _ENDING:
        signal.signal(number, first)


@contextmanager
def running(config: Config, show: Callable[[str], None] = lambda _: None, *, router: str = ROUTER) -> Iterator[str]:
    """Run the embedded cluster while the block is open; yields its base URL, e.g. ``http://127.0.0.1:8000``.

    Its drafters are processes of this machine, so they are trusted unless the configuration says otherwise. ``show`` is
    called with a line for each step; ``router`` is as in ``build_app``.
    """
    config, for_devices = with_gateway(config.on_own_host())
    check_authentication(os.environ)
    VERIFIERS[config.verifiers.engine].check_installed()
    _check_port(config)
    show(f"Models: {config.model.target} and {len(config.drafters)} drafter group(s)")
    load_tokenizer(config.model.target)  # fetches and converts the embedded target, with progress bars
    show(sampling_line(config))
    reaper = None
    try:
        show("Ray: starting a private cluster on this machine")
        _start_ray(config)
        reaper = start_reaper(_session())
        _check_room(config)
        show("Serve: starting ingress and coordinator; the verifier loads its model")
        # The only ingress listens itself: a proxy in front of it would use as much CPU as the ingress does.
        proxies = ProxyLocation.Disabled if config.ingress.most == 1 else ProxyLocation.HeadOnly
        bring_up(config, proxies, show=_only_warnings(show), router=router)
        show(f"Drafters: {await_drafters(config, config.drafter_count)} ready")
        if line := verifier_line(config):
            show(line)
        if for_devices is not None:
            show(f"Gateway: on each device run\n  {for_devices}")
        yield f"http://{config.http.host}:{config.http.port}"
    finally:
        ray.shutdown()
        if reaper is not None:
            dismiss(reaper)


def sampling_line(config: Config) -> str:
    """The sampling parameters of requests that give none, in a line."""
    model = config.model
    found = read_sampling_defaults(model.generation_config, model.target, model.override_generation_config)
    shown = f"{found.text} ({found.source})" if found.text else f"temperature {SamplingParams().temperature:g}"
    return f"Sampling: {shown}, unless a request says otherwise"


def _only_warnings(show: Callable[[str], None]) -> Callable[[str], None]:
    return lambda line: show(line) if line == OPEN_TO_ALL else None


def _start_ray(config: Config) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if _TOKEN_PATH not in os.environ and _TOKEN not in os.environ:
        protect_token(Path.home())
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # ``show`` reports what Serve does
    with listening_on_loopback():
        init_in(
            private_folder() / "ray",  # world-writable by Ray, but inside our private folder
            address="local",
            namespace=config.cluster.namespace,
            num_cpus=config.cluster.num_cpus,
            resources=config.custom_resources,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    check_address(alive_nodes()[0]["NodeManagerAddress"])


def _check_room(config: Config) -> None:
    """Fail now if something can never be placed; Ray would wait for it silently."""
    claims = (*service_claims(config), *drafter_claims(config))
    cpus = sum(claim.resources.get("CPU", 0.0) for claim in claims)
    if cpus > config.cluster.num_cpus:
        raise ConfigError("cluster.num_cpus", f"{cpus:g} CPUs for all verifiers and drafters", config.cluster.num_cpus)
    error = misfit(claims, node_resources())
    if error is not None:
        raise error


def _session() -> Path:
    context = ray.get_runtime_context()
    return Path(context.get_temp_dir()) / context.get_session_name()


def _metrics_url() -> str | None:
    """URL of Ray's Prometheus exporter on this node; None if it does not answer."""
    url = f"http://127.0.0.1:{alive_nodes()[0]['MetricsExportPort']}/metrics"
    try:
        return url if httpx.get(url, timeout=_METRICS_DEADLINE_S).is_success else None
    except httpx.HTTPError:
        return None


def announce_metrics(url: str, folder: Path) -> Path:
    """Write the exporter's address as Ray's dashboard would, which does not run here; return the file."""
    file = folder / Path(DISCOVERY_FILE).name
    with NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as written:  # does not follow a link
        json.dump([{"labels": {"job": "ray"}, "targets": [urlsplit(url).netloc]}], written)
    Path(written.name).chmod(0o644)
    Path(written.name).replace(file)  # atomically: Prometheus may be reading
    return file


def _check_port(config: Config) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.http.host, config.http.port))
        except OSError as error:
            raise ConfigError(
                "http.port", f"a free port on {config.http.host} ({error.strerror}); set another one", config.http.port
            ) from error
