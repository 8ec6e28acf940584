"""Adapts ``outrider.scaling`` to Serve's controller, which asks these policies for the numbers of replicas.

Serve creates both from ``AutoscalingPolicy(policy_kwargs=...)``, pickles them by value, and calls them in every round
of the controller's loop. State lives in the policy: Serve creates a new one when the configuration changes, and a new
one scales nothing down before its delay for that has passed.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from outrider.scaling.demand import AdmissionLoad, demand_of, verifier_load
from outrider.scaling.policy import ScalingInput, ScalingRules, ScalingState, decide

STREAMS = "streams"  # name of an ingress's figure: responses under way
_LOOKED_EVERY_S = 1.0
INGRESS_START_S, _INGRESS_TREND_S = 20.0, 60.0  # a start until one was measured, and the window of its trend


class _Policy:
    """Decides once per second at most, and repeats Serve's present target in between."""

    def __init__(self, rules: ScalingRules) -> None:
        self._rules, self._memory = rules, ScalingState()
        self._looked_at_s: float | None = None

    def decide(self, context: Any, demand: float | None, active: float = 0.0, started_in_s: float = 0.0) -> int:
        wanted, now_s = int(context.target_num_replicas), time.monotonic()
        if self._looked_at_s is not None and now_s - self._looked_at_s < _LOOKED_EVERY_S:
            return min(max(wanted, self._rules.least), self._rules.most)
        self._looked_at_s = now_s
        seen = ScalingInput(now_s, int(context.current_num_replicas), wanted, demand, active, started_in_s)
        decision, self._memory = decide(self._rules, self._memory, seen)
        return decision.count


class VerifierScaling:
    """Scales verifiers by the load that their admissions have promised."""

    def __init__(self, **settings: Any) -> None:
        least, most = settings.pop("min"), settings.pop("max")
        self._policy = _Policy(ScalingRules(least, most, **settings))

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        loads = verifier_loads(context.raw_metrics or {})
        demand = demand_of(loads, float(context.total_queued_requests or 0.0))
        started_in_s = max((one.started_in_s for one in loads), default=0.0)
        found, active = (None, 0.0) if demand is None else (demand.all, demand.active)
        return self._policy.decide(context, found, active, started_in_s), {}


class IngressScaling:
    """Scales ingresses by the responses that they have under way."""

    def __init__(self, **settings: Any) -> None:
        least, most, self._each = settings.pop("min"), settings.pop("max"), settings.pop("streams")
        rules = ScalingRules(least, most, target_load=1.0, cold_start_s=INGRESS_START_S, trend_s=_INGRESS_TREND_S)
        self._policy = _Policy(rules)

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        streams = latest((context.raw_metrics or {}).get(STREAMS, {})).values()
        demand = sum(streams) / self._each if streams else None
        return self._policy.decide(context, demand, demand or 0.0), {}


def latest(series: Mapping[Any, Iterable[Any]]) -> dict[Any, float]:
    found = {replica: max(values, key=lambda one: one.timestamp, default=None) for replica, values in series.items()}
    return {replica: float(one.value) for replica, one in found.items() if one is not None}


def verifier_loads(metrics: Mapping[str, Mapping[Any, Iterable[Any]]]) -> tuple[AdmissionLoad, ...]:
    """Return loads of the replicas with complete figures; ``metrics`` is Serve's, by name and then by replica."""
    by_replica: dict[Any, dict[str, float]] = {}
    for name, series in metrics.items():
        for replica, value in latest(series).items():
            by_replica.setdefault(replica, {})[name] = value
    loads = (verifier_load(figures) for figures in by_replica.values())
    return tuple(one for one in loads if one is not None)
