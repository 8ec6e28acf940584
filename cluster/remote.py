"""Deploy the application to a running Ray cluster, update it in place, or remove it.

A deployment outlives this process: Serve's controller and the fleet are detached. A second deployment replaces the
first, replica by replica, and its coordinators then tell the fleet which drafters to run. Where only reloadable
settings or counts changed, replicas stay.
"""

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import ray
from ray import serve
from ray.exceptions import GetTimeoutError, RayError
from ray.serve.config import ProxyLocation
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.fleet.actor import FLEET_NAME
from actors.quotas import QUOTAS_NAME
from actors.ray_errors import last_line
from actors.ray_internals.core import cluster_address
from cluster.application import (
    APP_NAME,
    HEAD_RESOURCE,
    alive_nodes,
    await_drafters,
    bring_up,
    first_steps,
    node_resources,
    verifier_line,
)
from cluster.capacity_check import drafter_claims, misfit, place, service_claims, written
from outrider import __version__
from outrider.config.schema import Config
from outrider.contracts.errors import OutriderError

_CONNECT_DEADLINE_S = 5.0
_VERSIONS_DEADLINE_S = 60.0
_GONE_DEADLINE_S = 30.0
_POLL_S = 0.2

Show = Callable[[str], None]


class ClusterError(OutriderError):
    """The Ray cluster cannot be reached, or cannot run this version of Outrider."""


def deploy(config: Config, address: str, show: Show, *, restart: bool = False) -> None:
    """Deploy or update the application and wait until it serves; the last lines shown have the URL and what to try.

    ``address`` is in the form of ``ray.init``: ``auto``, ``host:6379`` or ``ray://host:10001``. ``restart`` is as in
    ``bring_up``.

    Raises:
        ClusterError: no cluster there, or it has other versions of Ray, Python or Outrider.
        ConfigError: ingress, coordinators and verifiers do not fit the cluster, or Serve listens elsewhere.
        GenerationFailedError: the application did not come up.
    """
    _connect(address, config.cluster.namespace)
    try:
        nodes = node_resources()
        show(f"Cluster: {len(nodes)} node(s) at {address}")
        _check_versions(show)
        error = misfit(service_claims(config), nodes)
        if error is not None:
            raise error
        absent = place(drafter_claims(config), nodes)
        for claim in dict.fromkeys(f"{claim.who} waits for a node with {written(claim.resources)}" for claim in absent):
            show(f"Note: a {claim}")
        updates = APP_NAME in serve.status().applications
        show("Serve: updating the application" if updates else "Serve: starting the application")
        proxies = ProxyLocation.HeadOnly if config.http.is_loopback else ProxyLocation.EveryNode
        bring_up(config, proxies, show, restart=restart)
        ready = await_drafters(config, config.drafter_count - len(absent))
        show(f"Drafters: {ready} of {config.drafter_count} ready")
        if line := verifier_line(config):
            show(line)
        url = _url(config)
        show(f"Ready: {config.model.public_name} at {url}/v1")
        for line in first_steps(config, url):
            show(line)
    finally:
        ray.shutdown()


def remove(config: Config, address: str, show: Show) -> None:
    """Remove the application, its fleet and its drafters; Serve too, if nothing else runs on it."""
    _connect(address, config.cluster.namespace)
    try:
        if APP_NAME in serve.status().applications:
            show("Serve: removing the application, once the responses under way have ended")
            serve.delete(APP_NAME)
        else:
            show("Serve: the application does not run here")
        _end_actors(config.cluster.namespace, show)
        if not serve.status().applications:
            end_serve: Any = serve.shutdown  # untyped
            end_serve()
        show("Removed")
    finally:
        ray.shutdown()


def _connect(address: str, namespace: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # ``show`` reports what Serve does
    try:
        _check_listens(address)
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError, RayError, SystemExit) as error:  # Ray exits if it cannot connect
        reason = "Ray did not connect" if isinstance(error, SystemExit) else error
        raise ClusterError(
            f"needs a running Ray cluster with the versions and the token of this machine at {address}, "
            f"found: {reason}. If the cluster asks for a token (`ray start` turns that on where ~/.ray/auth_token is), "
            "set RAY_AUTH_MODE=token here, too; away from the cluster's nodes connect to ray://HEAD:10001"
        ) from error


def _check_listens(address: str) -> None:
    """Fail at once if nothing listens: Ray itself takes two minutes to notice."""
    if address == "auto":
        address = cluster_address(address) or address  # may be that of a cluster that has ended
    host, colon, port = address.removeprefix("ray://").partition("/")[0].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_DEADLINE_S).close()


def _check_versions(show: Show) -> None:
    """Refuse nodes with another version of Outrider; Ray compares its own and Python's when it connects."""

    def version() -> str:  # nested, so that it is pickled by value for nodes that may not have this module
        from outrider import __version__ as found  # noqa: PLC0415

        return found

    asked = {
        node["NodeManagerAddress"]: ray.remote(version)
        .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
        .remote()
        for node in alive_nodes()
    }
    give_up_at_s = time.monotonic() + _VERSIONS_DEADLINE_S
    for node, answer in asked.items():
        try:
            found = ray.get(answer, timeout=max(0.0, give_up_at_s - time.monotonic()))
        except GetTimeoutError:
            show(f"Note: node {node} did not say within {_VERSIONS_DEADLINE_S:g} s which version it has")
            continue
        except RayError as error:
            found = last_line(error)
        if found != __version__:
            raise ClusterError(f"needs Outrider {__version__} on every node, found on {node}: {found}")


def _end_actors(namespace: str, show: Show) -> None:
    """End the fleet first: it would restart its drafters."""
    for prefix in (FLEET_NAME, "drafter-", QUOTAS_NAME):
        names = _named(namespace, prefix)
        for name in names:
            ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)
        give_up_at_s = time.monotonic() + _GONE_DEADLINE_S
        while left := _named(namespace, prefix):
            if time.monotonic() > give_up_at_s:
                raise ClusterError(f"needs {', '.join(left)} to end, found running after {_GONE_DEADLINE_S:g} s")
            time.sleep(_POLL_S)
        if names:
            show(f"Ended: {', '.join(names)}")


def _named(namespace: str, prefix: str) -> list[str]:
    actors: list[dict[str, str]] = list_named_actors(all_namespaces=True)
    return sorted(a["name"] for a in actors if a["namespace"] == namespace and a["name"].startswith(prefix))


def _url(config: Config) -> str:
    """The API's address for clients: the head node's, if it listens on all interfaces."""
    host = config.http.host
    if host in {"0.0.0.0", "::"}:  # noqa: S104 (a comparison)
        host = next(node["NodeManagerAddress"] for node in alive_nodes() if HEAD_RESOURCE in node["Resources"])
    return f"http://[{host}]:{config.http.port}" if ":" in host else f"http://{host}:{config.http.port}"
