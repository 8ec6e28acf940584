"""Canaries try another speculation mode in a few generations while all others keep theirs.

Their cost for the others shows only in part, as the others' slowdown. So canaries that clearly lose save a trial by
all, and other results say how much budget such a trial needs (docs/design/0019).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from outrider.selection.modes import SpeculationMode
from outrider.selection.tuning.epoch_samples import ThroughputSample, shortfall, trimmed_mean

_MANY = 12  # from so many generations on three are canaries, so that the trimmed mean leaves out one odd one
_LOST = 0.6  # a speed ratio below this is a clear loss; so low since canaries wait for the others' longer steps
_UNSEEN_LOSS = 0.1  # expected loss that canaries cannot show
_MOST_BEHIND = 3.0  # most factor by which the others' slowdown is extrapolated from the canaries to all


@dataclass(frozen=True, slots=True)
class CanaryResult:
    mode: SpeculationMode  # that they tried
    ratio: float  # predicted speed if all used the mode, over the speed of the kept mode
    load: float  # mean number of active generations in their epoch
    at_s: float  # time of the result, absolute

    @property
    def loss(self) -> float:
        """Share of the reward that a trial by all should lose."""
        return max(0.0, 1.0 - self.ratio) + _UNSEEN_LOSS

    @property
    def lost(self) -> bool:
        """Whether the mode lost so clearly that a trial by all is needless."""
        return self.ratio < _LOST


def canary_count(generations: int) -> int:
    """Return the number of canaries for so many generations; 0 where a trial by all costs no more."""
    if generations < 2:
        return 0
    return 3 if generations >= _MANY else 1


@dataclass(slots=True, eq=False)
class Canaries:
    """The generations that are canaries at present. Mutable."""

    mode: SpeculationMode | None = None  # that they try; None: there are none
    out: frozenset[str] = frozenset()
    _sent: set[str] = field(default_factory=set)  # active generations that are or were canaries

    def send(self, mode: SpeculationMode, generations: Collection[str]) -> None:
        """Choose generations that were no canaries before, the youngest first: they have most tokens to come."""
        if self._sent.issuperset(generations):
            self._sent.clear()
        fresh = [name for name in reversed(list(generations)) if name not in self._sent]
        self.mode, self.out = mode, frozenset(fresh[: canary_count(len(generations))])
        self._sent |= self.out

    def recall(self) -> None:
        """End the trial: no generation is a canary any more."""
        self.mode, self.out = None, frozenset()

    def ended(self, generation: str) -> None:
        """Forget a response that ended; without any canary left the trial ends."""
        self._sent.discard(generation)
        self.out -= {generation}
        if not self.out:
            self.mode = None

    def fewest_rounds(self, samples: Mapping[str, ThroughputSample]) -> float:
        return min((float(samples[name].rounds) for name in self.out), default=0.0)

    def ratio(self, samples: Mapping[str, ThroughputSample], known: float | None) -> float | None:
        """Predict ``CanaryResult.ratio``; None if canaries or others had no rounds.

        ``samples`` are of all generations in one epoch; ``known`` is the kept mode's reward before, in tokens/s of one.
        """
        mine = _speed(sample for name, sample in samples.items() if name in self.out)
        theirs = _speed(sample for name, sample in samples.items() if name not in self.out)
        if mine is None or not theirs:
            return None
        # The others' slowdown grows with the number of generations in the mode: extrapolate it from canaries to all.
        slowed = min(1.0, shortfall(theirs, known) * min(len(samples) / len(self.out), _MOST_BEHIND))
        return (1.0 - slowed) * mine / theirs


def _speed(samples: Iterable[ThroughputSample]) -> float | None:
    speeds = [sample.tokens / sample.seconds for sample in samples if sample.seconds]
    return trimmed_mean(speeds) if speeds else None
