"""The Serve application: an ingress in front of coordinators, each with a verifier of its own.

``build`` serves ``serve run serve_app.app:build config=my.yaml`` and a KubeRay ``serveConfigV2`` alike; ``build_app``
takes a parsed configuration.
"""

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve import Application

from outrider.config import Config, load_config
from serve_app.coordinator import Coordinator
from serve_app.ingress import Ingress, ServiceSettings

# Both wait for others most of the time; their models run in actors of their own.
_COORDINATOR_CPUS = 0.5
_INGRESS_CPUS = 0.5
_MAX_ONGOING_INGRESS_REQUESTS = 1000
_MAX_ROUTED_REQUESTS = 64  # waiting in an ingress for a coordinator; more are refused at once
_SHUTDOWN_GRACE_S = 600.0  # for responses under way to end when a replica is taken out of service


def build(args: Mapping[str, str]) -> Application:
    """Serve's builder: ``config`` is the path of the YAML file; without it the packaged defaults are used."""
    return build_app(load_config(args.get("config")))


def app_cpus(config: Config) -> float:
    """Ray CPUs that ingress, coordinators and verifiers claim together."""
    return _INGRESS_CPUS + config.verifiers.count * (_COORDINATOR_CPUS + config.verifiers.num_cpus)


def build_app(config: Config) -> Application:
    """Bind ingress and coordinators.

    A coordinator replica's placement group has one bundle for itself and one for its verifier, so that Serve scales
    both together and never places one without the other.
    """
    verifiers, limits = config.verifiers, config.limits
    verifier_bundle = {"CPU": verifiers.num_cpus, "GPU": verifiers.num_gpus, **verifiers.resources}
    coordinator: Any = serve.deployment(
        Coordinator,
        name="Coordinator",
        num_replicas=verifiers.count,
        ray_actor_options={"num_cpus": _COORDINATOR_CPUS},
        placement_group_bundles=[
            {"CPU": _COORDINATOR_CPUS},
            {name: amount for name, amount in verifier_bundle.items() if amount},
        ],
        placement_group_strategy="PACK",
        # One more than it admits, so that an overload is refused by name rather than queued without bound.
        max_ongoing_requests=limits.max_concurrent_generations + limits.max_queued_generations + 1,
        max_queued_requests=_MAX_ROUTED_REQUESTS,
        graceful_shutdown_timeout_s=_SHUTDOWN_GRACE_S,
    )
    ingress: Any = serve.deployment(
        Ingress,
        name="Ingress",
        ray_actor_options={"num_cpus": _INGRESS_CPUS},
        max_ongoing_requests=_MAX_ONGOING_INGRESS_REQUESTS,
    )
    application: Application = ingress.bind(coordinator.bind(config), ServiceSettings.from_config(config))
    return application
