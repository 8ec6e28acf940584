"""What admission knows: the responses that it follows, and what it has learnt of their classes and accounts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.admission.account_places import AccountPlaces
from outrider.admission.decisions import ClassAdmission
from outrider.admission.pricing import Prices
from outrider.admission.responses import TrackedResponse
from outrider.contracts.requests import GenerationId

_WEIGHT = 0.02  # of the newest decision
_MARGIN = 0.02  # a class is behind if its share of refusals exceeds that of all by this
_AHEAD = 1.1  # times the time that all were given on average


@dataclass(frozen=True, slots=True)
class DecisionMeans:
    refused: float = 0.0  # share
    granted: float = 0.0  # time factor of those let in, 0 for those refused
    decisions: int = 0

    def after(self, *, refused: bool, time_factor: float) -> "DecisionMeans":
        weight = max(_WEIGHT, 1.0 / (self.decisions + 1))
        granted = 0.0 if refused else time_factor
        return DecisionMeans(
            self.refused + weight * (refused - self.refused),
            self.granted + weight * (granted - self.granted),
            self.decisions + 1,
        )


_NONE = DecisionMeans()


class Fairness:
    """How often classes are refused, and how much verifier time they are given: running means over recent decisions.

    A class refused more often than all together goes first, unless it was also given more verifier time for each
    response that asked for it: that alone would give the most expensive class nearly all of it (docs/design/0064).
    """

    def __init__(self) -> None:
        self._classes: dict[str, DecisionMeans] = {}
        self._all = _NONE

    def decided(self, slo_class: str, *, refused: bool, time_factor: float) -> None:
        """Count a decision. ``time_factor`` is the verifier time it takes over what its rows alone take."""
        self._classes[slo_class] = self._of(slo_class).after(refused=refused, time_factor=time_factor)
        self._all = self._all.after(refused=refused, time_factor=time_factor)

    def is_behind(self, slo_class: str) -> bool:
        """Return whether a class was refused more often and given less time than all."""
        one = self._of(slo_class)
        return one.refused > self._all.refused + _MARGIN and one.granted < self._all.granted

    def is_ahead(self, slo_class: str) -> bool:
        """Return whether a class was given clearly more time than all."""
        return self._of(slo_class).granted > _AHEAD * self._all.granted

    def _of(self, slo_class: str) -> DecisionMeans:
        return self._classes.get(slo_class, _NONE)


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
