"""How many verifiers' worth of room is asked for, from what each one's admission says of itself. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from outrider.admission.decisions import AdmissionReport
from outrider.routing.load_units import CoordinatorLoad


@dataclass(frozen=True, slots=True)
class AdmissionLoad:
    """What one verifier's admission has promised, has waiting, and allows. A limit of 0 is not known, or none.

    Attributes:
        load: verifier seconds per second that active promises need; ``queued_load``: that those waiting need.
        kv_tokens: positions of KV that active responses are expected to hold; ``queued_kv_tokens``: those waiting.
        responses: that are made, suspended, or wait; ``queued_responses``: of these, that wait.
        places: responses that may be made at once.
        started_in_s: that it took to start; 0 is not known.
    """

    load: float = 0.0
    queued_load: float = 0.0
    load_limit: float = 0.0
    kv_tokens: float = 0.0
    queued_kv_tokens: float = 0.0
    kv_limit: float = 0.0
    responses: float = 0.0
    queued_responses: float = 0.0
    places: float = 0.0
    started_in_s: float = 0.0

    def figures(self) -> dict[str, float]:
        """By name, as Serve carries them from a replica to its controller."""
        return {name: float(value) for name, value in asdict(self).items()}


_NAMES = frozenset(one.name for one in fields(AdmissionLoad))


def verifier_load(figures: Mapping[str, float]) -> AdmissionLoad | None:
    """Of what ``AdmissionLoad.figures`` made; None if that is not all there (yet)."""
    found = {name: figures[name] for name in _NAMES if name in figures}
    return AdmissionLoad(**found) if len(found) == len(_NAMES) else None


def load_of_report(report: AdmissionReport, started_in_s: float = 0.0) -> AdmissionLoad:
    """As admission reports it."""
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
    """In verifiers, each filled to what its admission allows.

    Attributes:
        all: that active responses and those waiting need; ``active``: that active ones need.
        of: what there is least of: load, memory or places.
    """

    all: float
    active: float
    of: str = "load"


def demand_of(verifiers: Sequence[AdmissionLoad], unrouted: float = 0.0) -> Demand | None:
    """What all ask for together, by the resource that is shortest; None if nobody says what it allows.

    ``unrouted``: requests that wait for a verifier to be sent to. Best effort needs no load: it counts by its KV and
    its places. What an idle one allows says little of what it would with promises: it counts only where all are idle.
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
    """Of one verifier, for whoever chooses among several."""
    load = load_of_report(report)
    demand = demand_of([load])
    return CoordinatorLoad(0.0 if demand is None else demand.all, load.responses)
