"""What Serve's controller is told: its own context, filled with what replicas report, as it calls a policy."""

from dataclasses import asdict, replace
from typing import Any

import pytest
from ray.serve._private.common import DeploymentID, ReplicaID, TimeStampedValue
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from outrider.config.reading import load_config
from outrider.config.replicas import IngressScalingConfig, VerifierScalingConfig
from outrider.config.schema import Config
from outrider.scaling.demand import AdmissionLoad
from serve_app.app import build_app
from serve_app.scaling import STREAMS, IngressScaling, VerifierScaling, verifier_loads

DEPLOYMENT = DeploymentID("Coordinator", "outrider")
FULL = AdmissionLoad(load=0.8, load_limit=0.8, places=32.0, responses=20.0)
VERIFIERS = VerifierScalingConfig(min=1, max=8)


def context(reported: list[dict[str, float]], wanted: int, **fields: Any) -> AutoscalingContext:
    """As Serve's controller makes it; what each replica reported was another thing before."""
    metrics: dict[str, dict[ReplicaID, list[TimeStampedValue]]] = {}
    replicas = [ReplicaID(f"r{number}", DEPLOYMENT) for number in range(len(reported))]
    for replica, figures in zip(replicas, reported, strict=True):
        for name, value in figures.items():
            metrics.setdefault(name, {})[replica] = [TimeStampedValue(1.0, 99.0), TimeStampedValue(2.0, value)]
    found: dict[str, Any] = {
        "deployment_id": DEPLOYMENT,
        "deployment_name": "Coordinator",
        "app_name": "outrider",
        "current_num_replicas": len(reported),
        "target_num_replicas": wanted,
        "running_replicas": replicas,
        "total_num_requests": 0.0,
        "total_queued_requests": 0.0,
        "aggregated_metrics": {},
        "raw_metrics": lambda: metrics,
        "capacity_adjusted_min_replicas": 1,
        "capacity_adjusted_max_replicas": 8,
        "policy_state": {},
        "last_scale_up_time": None,
        "last_scale_down_time": None,
        "current_time": 0.0,
        "config": None,
    }
    return AutoscalingContext(**(found | fields))


def test_the_newest_of_each_replica_counts_once_it_is_all_there() -> None:
    figures = FULL.figures()
    found = verifier_loads(context([figures, {"load": 3.0}], 2).raw_metrics or {})
    assert found == (FULL,)


def test_verifiers_by_what_is_promised() -> None:
    policy = VerifierScaling(**asdict(VERIFIERS))
    full = [FULL.figures(), replace(FULL, queued_load=0.4).figures()]
    assert policy(context(full, 2))[0] == 4, "2.5 of them, 0.8 full"


def test_between_two_looks_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("serve_app.scaling.time.monotonic", lambda: now_s)
    policy = VerifierScaling(**asdict(VERIFIERS))
    assert policy(context([FULL.figures()], 1))[0] == 2
    now_s += 0.5
    assert policy(context([replace(FULL, queued_load=2.0).figures()], 2))[0] == 2
    now_s += 1.0
    assert policy(context([replace(FULL, queued_load=2.0).figures()], 2))[0] > 2


def test_requests_that_found_no_verifier_count() -> None:
    policy = VerifierScaling(**asdict(VERIFIERS))
    assert policy(context([FULL.figures()], 1, total_queued_requests=64.0))[0] == 4, "(20 + 64) / 32 / 0.8"


def test_nobody_reports_yet() -> None:
    assert VerifierScaling(**asdict(VERIFIERS))(context([{}], 3))[0] == 3
    assert IngressScaling(**asdict(IngressScalingConfig(max=4)))(context([], 2))[0] == 2


def test_ingresses_by_streams() -> None:
    policy = IngressScaling(**asdict(IngressScalingConfig(max=4, streams=100)))
    assert policy(context([{STREAMS: 120.0}, {STREAMS: 130.0}], 2))[0] == 3


def deployments(config: Config) -> dict[str, Any]:
    """Serve's options of each."""
    ingress = build_app(config)._bound_deployment  # noqa: SLF001 (there is no other way to them)
    coordinator = ingress.init_args[0]._bound_deployment  # noqa: SLF001 (likewise)
    return {one.name: one._deployment_config for one in (ingress, coordinator)}  # noqa: SLF001 (likewise)


def test_serve_is_given_the_policies_with_delays_of_their_own() -> None:
    config = load_config()
    scaled = replace(
        config,
        verifiers=replace(config.verifiers, count=2, autoscaling=VERIFIERS),
        ingress=replace(config.ingress, autoscaling=IngressScalingConfig(max=3)),
    )
    found = deployments(scaled)
    for name, kind, least, begins, most in (
        ("Coordinator", VerifierScaling, 1, 2, 8),
        ("Ingress", IngressScaling, 1, 1, 3),
    ):
        autoscaling: AutoscalingConfig = found[name].autoscaling_config
        counts = autoscaling.min_replicas, autoscaling.initial_replicas, autoscaling.max_replicas
        assert counts == (least, begins, most)
        assert (autoscaling.upscale_delay_s, autoscaling.downscale_delay_s) == (0.0, 0.0)
        made = autoscaling.policy.get_policy()(**autoscaling.policy.policy_kwargs)
        assert made(context([], 1))[0] == 1
        assert type(made).__name__ == kind.__name__


def test_off_by_default() -> None:
    found = deployments(load_config())
    assert [one.autoscaling_config for one in found.values()] == [None, None]
    assert [one.num_replicas for one in found.values()] == [1, 1]
