"""Compute the demand for verifiers from the reports of each one's admission. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from outrider.admission.decisions import AdmissionReport
from outrider.routing.load_units import CoordinatorLoad


@dataclass(frozen=True, slots=True)
class AdmissionLoad:
    """Load that one verifier's admission has promised, has waiting, and allows. A limit of 0 is none or not known."""

    load: float = 0.0  # verifier seconds per second that active promises need; ``queued_load``: that waiting ones need
    queued_load: float = 0.0
    load_limit: float = 0.0
    kv_tokens: float = 0.0  # positions of KV expected of active responses; ``queued_kv_tokens``: of waiting ones
    queued_kv_tokens: float = 0.0
    kv_limit: float = 0.0
    responses: float = 0.0  # active, suspended and waiting responses; ``queued_responses``: the waiting ones of these
    queued_responses: float = 0.0
    places: float = 0.0  # responses that may be active at once
    started_in_s: float = 0.0  # how long the verifier took to start; 0 is not known

    def figures(self) -> dict[str, float]:
        """Return the fields by name, as Serve sends them from a replica to its controller."""
        return {name: float(value) for name, value in asdict(self).items()}


_NAMES = frozenset(one.name for one in fields(AdmissionLoad))


def verifier_load(figures: Mapping[str, float]) -> AdmissionLoad | None:
    """Restore a load from ``AdmissionLoad.figures``; None if a figure is missing (yet)."""
    found = {name: figures[name] for name in _NAMES if name in figures}
    return AdmissionLoad(**found) if len(found) == len(_NAMES) else None


def load_of_report(report: AdmissionReport, started_in_s: float = 0.0) -> AdmissionLoad:
    waiting = sum(one.waiting for one in report.classes.values())
    active = sum(one.active for one in report.classes.values())
    return AdmissionLoad(
        load=report.load,
        queued_load=report.queued_load,
        load_limit=report.limit,
        kv_tokens=report.kv_tokens,
        queued_kv_tokens=report.queued_kv_tokens,
        kv_limit=float(report.kv_limit or 0),
        responses=active + waiting + report.suspended,
        queued_responses=waiting,
        places=report.places,
        started_in_s=started_in_s,
    )


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand in verifiers, each filled to what its admission allows."""

    all: float  # of active and waiting responses; ``active``: of active ones
    active: float
    of: str = "load"  # the scarcest resource: load, memory or places


def demand_of(verifiers: Sequence[AdmissionLoad], unrouted: float = 0.0) -> Demand | None:
    """Return the demand of all verifiers for the scarcest resource; None if no limit is known.

    ``unrouted`` is the number of requests that wait for a verifier. Best effort has no load and counts by KV and
    places. An idle verifier's limit is not that with promises, so it counts only where all are idle.
    """
    found = list[Demand]()
    for of, (active, queued, limit, more) in _RESOURCES.items():
        known = [one for one in verifiers if limit(one) > 0.0]
        limits = [limit(one) for one in known if active(one) > 0.0] or [limit(one) for one in known]
        if limits:
            each = sum(limits) / len(limits)
            held = sum(map(active, verifiers)) / each
            found.append(Demand(held + (sum(map(queued, verifiers)) + more * unrouted) / each, held, of))
    if not found:
        return None
    worst = max(found, key=lambda one: one.all)
    return Demand(worst.all, max(one.active for one in found), worst.of)


_Figure = Callable[[AdmissionLoad], float]
_RESOURCES: Mapping[str, tuple[_Figure, _Figure, _Figure, float]] = {
    "load": (lambda one: one.load, lambda one: one.queued_load, lambda one: one.load_limit, 0.0),
    "memory": (lambda one: one.kv_tokens, lambda one: one.queued_kv_tokens, lambda one: one.kv_limit, 0.0),
    "places": (
        lambda one: one.responses - one.queued_responses,
        lambda one: one.queued_responses,
        lambda one: one.places,
        1.0,
    ),
}


def fullness_of_report(report: AdmissionReport) -> CoordinatorLoad:
    """Return how full one verifier is, for routing."""
    load = load_of_report(report)
    demand = demand_of([load])
    return CoordinatorLoad(0.0 if demand is None else demand.all, load.responses)
