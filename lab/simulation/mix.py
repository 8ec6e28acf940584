"""Search how many devices of a mix one server keeps its promises to, by simulation with several seeds.

A mix keeps its proportion: 200 devices of a mix of 30 and 10 are 150 and 50. Promises are kept if, in every promised
class, at most a share epsilon of the responses is late or refused, and at most one first token in a hundred comes later
than ``PromiseRule.first_token_s``. The rule is the same with and without drafts.

A run must be long enough for responses to become late. It is measured in periods: a period is a response at the
promised speed of the slowest group. After one period of warm-up, 1.5 periods are measured (up to 6 with few devices),
and a response that is behind at the end counts. A search makes runs of half that length, in which some responses are
not late yet, so it finds too many rather than too few; whole runs with each seed confirm the number or reduce it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor

from lab.simulation.capacity import capacity
from lab.simulation.planning import mean_tokens
from lab.simulation.results import SimulationResults
from lab.simulation.run import simulate
from lab.simulation.scenario import DeviceGroup, Scenario, System, VerifierModel
from lab.simulation.settings import admission_of

_LEAST_PERIOD_S = 10.0
_WARMUP_PERIODS, _LEAST_PERIODS = 1.0, 1.5
_MOST_PERIODS, _RESPONSES = (
    6.0,
    100,
)  # measured periods are raised, up to 6, until all devices together end about 100 responses
_ASSUMED_TOKENS_PER_S = 8.0  # by best effort, to estimate how long a response lasts
_QUICK = 0.5  # length of a search's runs over that of whole ones
_RESOLUTION = 0.05
MOST_ROUNDS = 120_000  # of a run, at the promised speeds; limits the time of a plan


@dataclass(frozen=True, slots=True)
class PromiseRule:
    epsilon: float  # share of a class's responses that may be late or refused
    first_token_s: float = 5.0  # limit of the p99 of times to first token


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """Why promises broke in a run: the worst class's share, or the times to first token."""

    devices: int
    unkept_class: str  # empty if only first tokens came too late
    unkept_share: float  # share of the worst class's responses that are late or refused
    refused_share: float  # share of the worst class's responses that are refused
    first_token_p99_s: float


@dataclass(frozen=True, slots=True)
class MixSearch:
    """Result of a search, or of a confirmation, with one seed.

    Attributes:
        broken_by: the failure at the next larger number tried; None if none failed: ``devices`` is the search's limit.
    """

    devices: int  # the largest number tried that keeps promises; 0 if not even one device's promise is kept
    broken_by: BrokenPromise | None


@dataclass(frozen=True, slots=True)
class MixCapacity:
    """Capacity of one server for a mix, over seeds.

    Attributes:
        searched_all: whether a larger number failed; if not, ``devices`` is the search's limit and only a lower bound.
    """

    devices: int  # kept with every seed; 0 if not even one device's promise is kept
    most: int  # kept with at least one seed
    searched_all: bool
    broken_by: BrokenPromise | None  # the failure at the next larger number tried; None if none failed


@dataclass(frozen=True)
class Mix:
    """Devices in proportion, on one server."""

    groups: tuple[DeviceGroup, ...]
    verifier: VerifierModel

    @cached_property
    def devices(self) -> int:
        return sum(group.count for group in self.groups)

    @cached_property
    def response_s(self) -> float:
        """Time of a response of the slowest group at its promised speed, with the pause after it."""
        return max(
            mean_tokens(group.output) / (group.slo.tokens_per_s or _ASSUMED_TOKENS_PER_S) + group.pause_s
            for group in self.groups
        )

    @cached_property
    def period_s(self) -> float:
        """Unit of a run's length: a response, but at least 10 s, so that a first token can come too late in it."""
        return max(self.response_s, _LEAST_PERIOD_S)

    def without_drafts(self) -> "Mix":
        """Return the same devices without drafts: the target alone."""
        groups = (replace(group, window=0, expansion=(), predictor=None) for group in self.groups)
        return Mix(tuple(groups), self.verifier)

    def of(self, devices: int) -> tuple[DeviceGroup, ...]:
        """Return ``devices`` in the same proportion (largest remainders); groups without any are left out."""
        wanted = [devices * group.count / self.devices for group in self.groups]
        counts = [floor(one) for one in wanted]
        by_rest = sorted(range(len(wanted)), key=lambda index: (counts[index] - wanted[index], index))
        for index in by_rest[: devices - sum(counts)]:
            counts[index] += 1
        pairs = zip(self.groups, counts, strict=True)
        return tuple(replace(group, count=count) for group, count in pairs if count)

    def run(self, devices: int, seed: int, *, quick: bool = False) -> SimulationResults:
        """Simulate a number of devices; ``quick``: with periods of half the length."""
        groups, period_s = self.of(devices), self.period_s * (_QUICK if quick else 1.0)
        staggered = tuple(replace(group, stagger_s=group.stagger_s or period_s) for group in groups)
        warmup_s = _WARMUP_PERIODS * period_s
        periods = min(max(_LEAST_PERIODS, _RESPONSES / devices), _MOST_PERIODS)
        return simulate(
            Scenario(
                name="plan",
                system=System.OUTRIDER,
                groups=staggered,
                verifier=self.verifier,
                admission=admission_of(self.verifier),
                plans_late=True,
                duration_s=warmup_s + periods * period_s,
                warmup_s=warmup_s,
                seed=seed,
            )
        )

    def most_devices(self, tokens_per_round: float, most_rounds: int) -> int:
        """Return the number of devices with which a run has about ``most_rounds`` rounds at the promised speeds."""
        share_s = (_WARMUP_PERIODS + _LEAST_PERIODS) * self.period_s
        speed = sum(group.count * (group.slo.tokens_per_s or _ASSUMED_TOKENS_PER_S) for group in self.groups)
        return max(1, int(most_rounds * tokens_per_round * self.devices / (speed * share_s)))


def breaks(found: SimulationResults, rule: PromiseRule, devices: int) -> BrokenPromise | None:
    """Return how a run broke promises, None if it kept all; at least one class must have a promise."""
    promised = (one for one in found.by_class() if one.slo.tokens_per_s)
    worst = max(promised, key=lambda one: one.response_violation_rate)
    share, waited_s = worst.response_violation_rate, found.first_token_times.p99_s
    if share <= rule.epsilon and waited_s <= rule.first_token_s:
        return None
    refused = worst.refused / max(worst.responses + worst.refused, 1)
    return BrokenPromise(devices, worst.slo.name if share > rule.epsilon else "", share, refused, waited_s)


def search(broken: Callable[[int], BrokenPromise | None], guess: int, most: int) -> MixSearch:
    """Search the largest number of devices, at most ``most``, of which a run is not ``broken``."""
    tried: dict[int, BrokenPromise | None] = {}

    def broke(devices: int) -> bool:
        if devices not in tried:
            tried[devices] = broken(devices)
        return tried[devices] is not None

    limit = 1 if broke(1) else most  # one device first: it shows cheaply that nobody can be served
    found = capacity(broke, 0.0, limit, max(1, min(guess, limit)), _RESOLUTION, look_beyond=False).devices
    beyond = (tried[devices] for devices in sorted(tried) if devices > found)
    return MixSearch(found, next((one for one in beyond if one is not None), None))


def confirm(broken: Callable[[int], BrokenPromise | None], devices: int) -> MixSearch:
    """Step down from ``devices``, 5 % at a time, to a number whose promises are kept."""
    last: BrokenPromise | None = None
    while devices > 0 and (found := broken(devices)) is not None:
        last, devices = found, devices - max(1, int(_RESOLUTION * devices))
    return MixSearch(devices, last)


def served(searched: MixSearch, confirmed: Sequence[MixSearch]) -> MixCapacity:
    """Combine the search, made with one seed, and the confirmation of each seed (at least one)."""
    kept = [one.devices for one in confirmed]
    ends = [one.broken_by for one in (*confirmed, searched) if one.broken_by is not None]
    beyond = min((end for end in ends if end.devices > min(kept)), key=lambda end: end.devices, default=None)
    return MixCapacity(min(kept), max(kept), beyond is not None, beyond)
