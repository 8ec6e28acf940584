"""Bring the application up on the Ray cluster that this process is connected to, and wait until it serves."""

import json
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview

from actors.messages import CoordinatorReport, DrafterState, FleetStatus
from actors.ray_internals.serve import await_proxies, deployment_details, deployment_version, http_address
from cluster.capacity_check import Resources
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError, GenerationFailedError
from outrider.costs.profiles import ProfiledOn
from serve_app.app import ROUTER, SHUTDOWN_GRACE_S, build_app
from serve_app.fleet_gauges import application_fleet
from serve_app.versions import fingerprint, version_of

APP_NAME = "outrider"
HEAD_RESOURCE = "node:__internal_head__"  # Ray's mark of the head node
OPEN_TO_ALL = (
    "Warning: no auth.keys_file, so whoever reaches the port may ask for anything; set one, or http.host: 127.0.0.1"
)
_DRAFTERS_DEADLINE_S = 60.0
_REPORT_DEADLINE_S = 10.0
_POLL_S = 0.2


def bring_up(
    config: Config,
    proxies: ProxyLocation,
    show: Callable[[str], None],
    *,
    restart: bool = False,
    router: str = ROUTER,
) -> None:
    """Deploy the application, or update the running one, and wait until it serves.

    Args:
        config: of the application.
        proxies: nodes on which Serve's proxies listen, if Serve does not run yet; without them the ingress listens.
        show: called with each new state.
        restart: restart every replica, even if only reloadable settings or nothing changed.
        router: as in ``build_app``; changing it for a running application needs ``restart``.
    """
    if config.open_to_all:
        show(OPEN_TO_ALL)
    http, ingress_listens = config.http, proxies is ProxyLocation.Disabled
    serve.start(proxy_location=proxies, http_options=HTTPOptions(host=http.host, port=http.port))
    _check_listener(http.host, http.port)
    running = "" if restart else _running_version()
    version = version_of(fingerprint(config, ingress_listens=ingress_listens), running)
    if version == running:
        show("Serve: running replicas stay, and apply reloadable settings")
    target = serve.RunTarget(
        build_app(config, ingress_listens=ingress_listens, version=version, router=router), APP_NAME, "/"
    )
    try:
        serve.run_many([target], wait_for_applications_running=False)
        _follow(config, show)
        await_proxies()
    except (RuntimeError, TimeoutError) as error:
        raise GenerationFailedError(f"the application did not come up: {error}") from error


def await_drafters(config: Config, expected: int) -> int:
    """Wait for this many ready drafters, within a deadline; return how many are. The service works without them."""
    fleet = application_fleet(config.cluster.namespace)
    give_up_at_s = time.monotonic() + _DRAFTERS_DEADLINE_S
    ready = 0
    while ready < expected and time.monotonic() < give_up_at_s:
        time.sleep(_POLL_S)
        with suppress(RayError):  # a fleet that is still starting, or restarting, is polled again
            asked: Any = fleet.status.remote()
            status: FleetStatus = ray.get(asked, timeout=_DRAFTERS_DEADLINE_S)
            ready = sum(drafter.state is DrafterState.READY for drafter in status.drafters)
    return ready


def verifier_line(config: Config) -> str:
    """Describe the verifiers' machines in a line; empty if not all have reported in time.

    The fleet still lists coordinators that an update has replaced: only those that Serve runs count.
    """
    fleet = application_fleet(config.cluster.namespace)
    give_up_at_s = time.monotonic() + _REPORT_DEADLINE_S
    while time.monotonic() < give_up_at_s:
        with suppress(RayError):
            running = _running_coordinators()
            asked: Any = fleet.status.remote()
            status: FleetStatus = ray.get(asked, timeout=_REPORT_DEADLINE_S)
            if line := machines_line(status.coordinators, running):
                return line
        time.sleep(_POLL_S)
    return ""


def machines_line(reports: Sequence[CoordinatorReport], running: Collection[str]) -> str:
    """Describe the machines of the running coordinators; empty until each of them has reported."""
    machines = {report.id: report.machine for report in reports if report.id in running and report.machine is not None}
    if not machines or len(machines) < len(running):
        return ""
    return "Verifier: " + "; ".join(dict.fromkeys(map(_machine_text, machines.values())))


def _running_coordinators() -> frozenset[str]:
    """Ids of the running coordinators, which are their Serve replica ids."""
    deployment = deployment_details(APP_NAME, "Coordinator")
    return frozenset(replica["replica_id"] for replica in deployment["replicas"] if replica["state"] == "RUNNING")


def _machine_text(machine: ProfiledOn) -> str:
    threads = f", {machine.threads} thread(s)" if machine.device == "cpu" else ""
    return f"{machine.engine} in {machine.dtype} on {machine.hardware}{threads}"


def first_steps(config: Config, url: str) -> tuple[str, ...]:
    """The page's address, and a request that can be pasted into a shell."""
    body = {
        "model": config.model.public_name,
        "messages": [{"role": "user", "content": "Name the capital of France."}],
    }
    key = ' -H "Authorization: Bearer $OUTRIDER_API_KEY"' if config.auth.has_keys else ""
    asked = shlex.quote(json.dumps(body, ensure_ascii=False))
    return (
        f"Page: {url}/",
        f"Try: curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d {asked}",
    )


def alive_nodes() -> list[dict[str, Any]]:
    nodes: Any = ray.nodes  # untyped
    return [node for node in nodes() if node["Alive"]]


def node_resources() -> tuple[Resources, ...]:
    return tuple(node["Resources"] for node in alive_nodes())


def state_line(status: ApplicationStatusOverview) -> str:
    """The application's state and what keeps it from running, in a line."""
    parts = [f"Application: {status.status.value.lower()}"]
    troubles = [status.message] if status.status is not ApplicationStatus.RUNNING else []
    for name, deployment in sorted(status.deployments.items()):
        replicas = ", ".join(f"{count} {state.lower()}" for state, count in deployment.replica_states.items())
        parts.append(f"{name}: {replicas or 'none yet'}")
        troubles.append(deployment.message)
    seen = dict.fromkeys(first for trouble in troubles if (first := trouble.strip().partition("\n")[0]))
    return "; ".join(parts) + "".join(f"\n  {trouble}" for trouble in seen)


def failure_line(status: ApplicationStatusOverview) -> str:
    """Why an application did not come up: Serve's message, and what each deployment raised (its last line)."""
    raised = (deployment.message.strip().rpartition("\n")[2] for deployment in status.deployments.values())
    return " ".join(filter(None, (status.message, *raised)))


def _running_version() -> str:
    """Version of all replicas; empty if they differ, there are none, or the last ones did not come up."""
    status = serve.status().applications.get(APP_NAME)
    if status is None or status.status in {ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.DELETING}:
        return ""
    versions = {deployment_version(APP_NAME, name) for name in status.deployments}
    return versions.pop() if len(versions) == 1 else ""


def _check_listener(host: str, port: int) -> None:
    found_host, found_port = http_address()  # serve.start does not change a running Serve
    for field, found, wanted in (("host", found_host, host), ("port", found_port, port)):
        if found != wanted:
            needed = f"{found} as Serve on this cluster already listens there (or run `serve shutdown` first)"
            raise ConfigError(f"http.{field}", needed, wanted)


def _follow(config: Config, show: Callable[[str], None]) -> None:
    limits = config.limits
    deadline_s = SHUTDOWN_GRACE_S + 2 * (limits.verifier_deadline_s + limits.verifier_start_deadline_s)
    give_up_at_s = time.monotonic() + deadline_s
    shown = ""
    while True:
        status = serve.status().applications[APP_NAME]
        line = state_line(status)
        if line != shown:
            show(line)
            shown = line
        if status.status is ApplicationStatus.RUNNING:
            return
        if status.status is ApplicationStatus.DEPLOY_FAILED:
            raise RuntimeError(failure_line(status))
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"{line}, after {deadline_s:g} s; Serve keeps trying")
        time.sleep(_POLL_S)
