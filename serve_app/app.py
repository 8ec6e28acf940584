"""Builds the Serve application: an ingress in front of coordinators, each with a verifier of its own.

``build`` is the builder for ``serve run serve_app.app:build config=my.yaml`` and for a KubeRay ``serveConfigV2``;
``build_app`` takes a parsed configuration.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import yaml
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, BackpressureConfig, RequestRouterConfig

from actors.ray_internals.serve import with_version
from outrider.assembly.draft_models import draft_model_hashes
from outrider.assembly.heads import read_heads
from outrider.config.reading import load_config, parse_config
from outrider.config.reloadable import reloadable_of
from outrider.config.replicas import ScalingConfig, VerifierConfig
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.costs.profiles import read_profile
from serve_app.api.http.listener import Address
from serve_app.api.service import ServiceSettings
from serve_app.coordination.coordinator import Coordinator
from serve_app.coordination.settings import coordinator_settings
from serve_app.ingress.ingress import Ingress
from serve_app.spans import check_installed

# both mostly wait for other processes; models run in actors of their own
_COORDINATOR_CPUS = 0.5
_INGRESS_CPUS = 0.5
_MAX_ONGOING_INGRESS_REQUESTS = 1000  # without reads such as probes; an ingress itself refuses more at once
_MAX_READS = 256  # so that a proxy still lets probes through when all responses are taken
_MAX_QUEUED_INGRESS_REQUESTS = 256  # per HTTP proxy, behind all of these
_BUSY = BackpressureConfig(status_code=429, retry_after_s=1.0)  # by the proxy; like the ingress's own answer
ROUTER = "serve_app.coordination.request_router:PrefixRouter"
_ROUTING_STATS_S, _ROUTING_STATS_DEADLINE_S = 1.0, 5.0  # how often Serve asks each coordinator for its figures
_BY_PROMISE, _BY_STREAMS = "serve_app.scaling:VerifierScaling", "serve_app.scaling:IngressScaling"
# Never reached: a coordinator refuses by itself. If limits were lowered below what runs, a bound of Serve's would
# block calls that running responses need to go on (``Coordinator.read``).
_MAX_ONGOING_COORDINATOR_CALLS = 2**22
SHUTDOWN_GRACE_S = 600.0  # for responses under way to end when a replica is taken out of service


def build(args: Mapping[str, Any]) -> Application:
    """Build the application from Serve's arguments.

    Args:
        args: ``config`` is the path of the YAML file, or the configuration itself as a mapping; without it the
            packaged defaults apply.
    """
    return build_app(config_of(args))


def config_of(args: Mapping[str, Any]) -> Config:
    for name in args:
        if name != "config":
            raise ConfigError("application arguments", "known keys (config)", name)
    given = args.get("config")
    if given is not None and not isinstance(given, str | Mapping):
        raise ConfigError("config", "the path of a YAML file, or the configuration as a mapping", given)
    if not isinstance(given, Mapping):
        return load_config(given).check_together(is_served=True)
    return parse_config(yaml.safe_dump(dict(given)), "the application's arguments").check_together(is_served=True)


def ingress_bundle() -> dict[str, float]:
    return {"CPU": _INGRESS_CPUS}


def coordinator_bundles(verifiers: VerifierConfig) -> list[dict[str, float]]:
    """Return the placement group of a coordinator: one bundle for itself, one for its verifier."""
    verifier = {"CPU": verifiers.num_cpus, "GPU": verifiers.num_gpus, **verifiers.resources}
    return [{"CPU": _COORDINATOR_CPUS}, {name: amount for name, amount in verifier.items() if amount}]


def _coordinator(config: Config, router: str) -> Any:
    return serve.deployment(
        Coordinator,
        name="Coordinator",
        **_replicas(config.verifiers.count, config.verifiers.autoscaling, _BY_PROMISE),
        ray_actor_options={"num_cpus": _COORDINATOR_CPUS},
        placement_group_bundles=coordinator_bundles(config.verifiers),
        placement_group_strategy="PACK",
        max_ongoing_requests=_MAX_ONGOING_COORDINATOR_CALLS,
        user_config=reloadable_of(config),
        graceful_shutdown_timeout_s=SHUTDOWN_GRACE_S,
        request_router_config=RequestRouterConfig(
            request_router_class=router,  # type: ignore[arg-type]  # or a class
            request_routing_stats_period_s=_ROUTING_STATS_S,  # type: ignore[arg-type]  # a number
            request_routing_stats_timeout_s=_ROUTING_STATS_DEADLINE_S,  # type: ignore[arg-type]  # a number
        ),
    )


def _replicas(count: int, scaling: ScalingConfig | None, policy: str) -> dict[str, Any]:
    """Return Serve's options for the number of replicas. Serve's delays are 0, as they would add to our policy's."""
    if scaling is None:
        return {"num_replicas": count}
    autoscaling = AutoscalingConfig(
        min_replicas=scaling.min,
        initial_replicas=count,
        max_replicas=scaling.max,
        upscale_delay_s=0.0,
        downscale_delay_s=0.0,
        policy=AutoscalingPolicy(policy_function=policy, policy_kwargs=asdict(scaling)),  # type: ignore[no-untyped-call]  # Ray's
    )
    return {"autoscaling_config": autoscaling}


def build_app(
    config: Config, *, ingress_listens: bool = False, version: str | None = None, router: str = ROUTER
) -> Application:
    """Bind ingress and coordinators.

    With ``ingress_listens`` there is one ingress, which listens on the configured port itself; otherwise Serve's
    proxies listen for all ingresses.

    A coordinator replica's placement group has one bundle for itself and one for its verifier, so that Serve scales
    both together and never places one without the other. Cost profiles, heads and hashes of draft models are read here
    and passed on by value.

    Reloadable settings are each deployment's ``user_config`` as well. Running replicas of the same ``version`` apply
    them (``serve_app.versions``); replicas of another version are replaced. Without ``version`` Serve derives one: for
    an application that is described in a file, from import path, arguments and environment.

    ``router`` is the import path of the request router class that ingresses use.

    Raises:
        ConfigError: a cost profile cannot be read, an untrusted group's draft model is not known, or requests are to be
            traced and OpenTelemetry is not installed.
        ModelUnavailableError: a decision head cannot be read.
    """
    check_installed(config.tracing)
    profiles = tuple(map(read_profile, config.scheduling.cost_profiles))
    wanted = coordinator_settings(config, profiles, read_heads(config), draft_model_hashes(config))
    coordinator = _coordinator(config, router)
    ingress: Any = serve.deployment(
        Ingress,
        name="Ingress",
        **_replicas(config.ingress.count, config.ingress.autoscaling, _BY_STREAMS),
        ray_actor_options={"num_cpus": _INGRESS_CPUS},
        max_ongoing_requests=_MAX_ONGOING_INGRESS_REQUESTS + _MAX_READS,
        max_queued_requests=_MAX_QUEUED_INGRESS_REQUESTS,
        backpressure_config=_BUSY,
        user_config=reloadable_of(config),
        graceful_shutdown_timeout_s=SHUTDOWN_GRACE_S,
    )
    address = Address(config.http.host, config.http.port) if ingress_listens else None
    settings = replace(ServiceSettings.from_config(config), max_requests=_MAX_ONGOING_INGRESS_REQUESTS)
    ingress, coordinator = (with_version(one, version) for one in (ingress, coordinator))
    application: Application = ingress.bind(coordinator.bind(wanted, config), settings, config, address)
    return application
