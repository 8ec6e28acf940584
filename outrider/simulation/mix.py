"""How many devices of a mix one server keeps its promises to: by simulation, several seeds, with drafts or without.

A mix is kept in proportion: of 200 devices of a mix of 30 and 10 there are 150 and 50. A promise is kept if in every
promised class at most a share epsilon of the responses is slower than promised or refused by admission, and at most
one first token in a hundred comes later than ``PromiseRule.first_token_s``; likewise with and without drafts.

A run is long enough to be late in: whoever is behind by its end counts, responses last as long as they may at the
promised speed, and after a warm-up as long as one of them it goes on for one and a half, with few devices for six. A
search makes runs of half that time, in which some are not late yet; so what it found is confirmed, seed by seed, by
whole ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor

from outrider.simulation.capacity import capacity
from outrider.simulation.planning import mean_tokens
from outrider.simulation.results import SimulationResults
from outrider.simulation.run import simulate
from outrider.simulation.scenario import DeviceGroup, Scenario, System, VerifierModel
from outrider.simulation.settings import admission_of

_LEAST_PERIOD_S = 10.0
_WARMUP_PERIODS, _LEAST_PERIODS = 1.0, 1.5
_MOST_PERIODS, _RESPONSES = 6.0, 100  # as long as that, where all devices together would end fewer than so many
_ASSUMED_TOKENS_PER_S = 8.0  # of best effort, to say how long a response lasts
_QUICK = 0.5  # of all that, while searching
_RESOLUTION = 0.05
MOST_ROUNDS = 120_000  # of a run, at the promised speeds: what a plan has time for


@dataclass(frozen=True, slots=True)
class PromiseRule:
    """When promises are kept."""

    epsilon: float  # share of a class's responses that may be late or refused
    first_token_s: float = 5.0  # one response in a hundred may wait longer


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """What broke a promise: the class that is kept least, or the wait for first tokens."""

    devices: int
    unkept_class: str  # empty if first tokens came too late
    unkept_share: float  # of that class's responses, or of the worst one's: late or refused
    refused_share: float  # of these
    first_token_p99_s: float


@dataclass(frozen=True, slots=True)
class MixSearch:
    """What was searched with one seed, or confirmed with it.

    Attributes:
        devices: the largest number that was seen to hold; 0 if not even one device's promise is kept.
        broken_by: what failed at the next number tried; None if none did, and ``devices`` is where the search ended.
    """

    devices: int
    broken_by: BrokenPromise | None


@dataclass(frozen=True, slots=True)
class MixCapacity:
    """Devices of a mix whose promises one server keeps.

    Attributes:
        devices: with every seed tried; 0 if not even one device's is kept.
        most: with some seed.
        searched_all: whether a larger number was seen to fail; if not, ``devices`` is where the search was ended, and
            is no capacity.
        broken_by: what failed at the next number tried; None if none did.
    """

    devices: int
    most: int
    searched_all: bool
    broken_by: BrokenPromise | None


@dataclass(frozen=True)
class Mix:
    """Devices in proportion, on one server."""

    groups: tuple[DeviceGroup, ...]
    verifier: VerifierModel

    @cached_property
    def devices(self) -> int:
        """As they were given."""
        return sum(group.count for group in self.groups)

    @cached_property
    def response_s(self) -> float:
        """A response of the slowest group at its promised speed, and the pause behind it."""
        return max(
            mean_tokens(group.output) / (group.slo.tokens_per_s or _ASSUMED_TOKENS_PER_S) + group.pause_s
            for group in self.groups
        )

    @cached_property
    def period_s(self) -> float:
        """What runs are measured in: a response, and no less than a first token needs to come too late."""
        return max(self.response_s, _LEAST_PERIOD_S)

    def without_drafts(self) -> "Mix":
        """The same devices, with the target alone."""
        groups = (replace(group, window=0, expansion=(), predictor=None) for group in self.groups)
        return Mix(tuple(groups), self.verifier)

    def of(self, devices: int) -> tuple[DeviceGroup, ...]:
        """So many devices in the same proportion; groups of which there would be none are left out."""
        wanted = [devices * group.count / self.devices for group in self.groups]
        counts = [floor(one) for one in wanted]
        by_rest = sorted(range(len(wanted)), key=lambda index: (counts[index] - wanted[index], index))
        for index in by_rest[: devices - sum(counts)]:
            counts[index] += 1
        pairs = zip(self.groups, counts, strict=True)
        return tuple(replace(group, count=count) for group, count in pairs if count)

    def run(self, devices: int, seed: int, *, quick: bool = False) -> SimulationResults:
        """So many of them for a while, or half of it."""
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
        """With which a run has about so many rounds, at the promised speeds."""
        share_s = (_WARMUP_PERIODS + _LEAST_PERIODS) * self.period_s
        speed = sum(group.count * (group.slo.tokens_per_s or _ASSUMED_TOKENS_PER_S) for group in self.groups)
        return max(1, int(most_rounds * tokens_per_round * self.devices / (speed * share_s)))


def breaks(found: SimulationResults, rule: PromiseRule, devices: int) -> BrokenPromise | None:
    """Whether a run broke a promise, of which there is at least one; None if all were kept."""
    promised = (one for one in found.by_class() if one.slo.tokens_per_s)
    worst = max(promised, key=lambda one: one.response_violation_rate)
    share, waited_s = worst.response_violation_rate, found.first_token_times.p99_s
    if share <= rule.epsilon and waited_s <= rule.first_token_s:
        return None
    refused = worst.refused / max(worst.responses + worst.refused, 1)
    return BrokenPromise(devices, worst.slo.name if share > rule.epsilon else "", share, refused, waited_s)


def search(broken: Callable[[int], BrokenPromise | None], guess: int, most: int) -> MixSearch:
    """The largest number of devices that holds, from a guess on.

    Args:
        broken: what broke a promise in a run with so many devices.
        guess: where to begin.
        most: devices that there is time to try.
    """
    tried: dict[int, BrokenPromise | None] = {}

    def broke(devices: int) -> bool:
        if devices not in tried:
            tried[devices] = broken(devices)
        return tried[devices] is not None

    limit = 1 if broke(1) else most  # promises that nobody is kept are found out with one device
    found = capacity(broke, 0.0, limit, max(1, min(guess, limit)), _RESOLUTION, look_beyond=False).devices
    beyond = (tried[devices] for devices in sorted(tried) if devices > found)
    return MixSearch(found, next((one for one in beyond if one is not None), None))


def confirm(broken: Callable[[int], BrokenPromise | None], devices: int) -> MixSearch:
    """The largest number that holds, in small steps down from one that was found."""
    last: BrokenPromise | None = None
    while devices > 0 and (found := broken(devices)) is not None:
        last, devices = found, devices - max(1, int(_RESOLUTION * devices))
    return MixSearch(devices, last)


def served(searched: MixSearch, confirmed: Sequence[MixSearch]) -> MixCapacity:
    """What every seed keeps, of one at least.

    Args:
        searched: with one of them.
        confirmed: with each.
    """
    kept = [one.devices for one in confirmed]
    ends = [one.broken_by for one in (*confirmed, searched) if one.broken_by is not None]
    beyond = min((end for end in ends if end.devices > min(kept)), key=lambda end: end.devices, default=None)
    return MixCapacity(min(kept), max(kept), beyond is not None, beyond)
