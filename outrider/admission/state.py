"""What admission knows: the responses that it follows, and what it has learnt of their classes and accounts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.admission.account_places import AccountPlaces
from outrider.admission.decisions import ClassAdmission
from outrider.admission.fairness import Fairness
from outrider.admission.pricing import Prices
from outrider.admission.responses import TrackedResponse
from outrider.contracts.requests import GenerationId


class ClassCounts:
    """Counters of ``ClassAdmission`` since the start, by class. Mutable."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def count(self, slo_class: str, what: str) -> None:
        self._counts.setdefault(slo_class, Counter())[what] += 1

    def classes(self, waiting: Mapping[str, int], active: Mapping[str, int]) -> dict[str, ClassAdmission]:
        """Return the counters with the numbers of responses that wait and are active now."""
        return {
            name: ClassAdmission(
                **self._counts.get(name, Counter()), waiting=waiting.get(name, 0), active=active.get(name, 0)
            )
            for name in sorted({*self._counts, *waiting, *active})
        }


@dataclass(slots=True, eq=False)
class AdmissionState:
    """Every response is in one of the first four. Mutable."""

    waiting: dict[GenerationId, TrackedResponse] = field(default_factory=dict)
    active: dict[GenerationId, TrackedResponse] = field(default_factory=dict)
    suspended: dict[GenerationId, TrackedResponse] = field(default_factory=dict)
    stalled: dict[GenerationId, tuple[TrackedResponse, float]] = field(default_factory=dict)  # since when
    prices: Prices = field(default_factory=Prices)
    fairness: Fairness = field(default_factory=Fairness)
    accounts: AccountPlaces = field(default_factory=AccountPlaces)
    counts: ClassCounts = field(default_factory=ClassCounts)
