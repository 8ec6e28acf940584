"""Canaries: a few generations that try another speculation mode while all others keep theirs.

Canaries show what a mode gains its users at a fraction of the cost of a probe by all. What the mode costs others (rows
of the verifier, processors that drafters take from it) shows only in part: the others are slower than before, and would
be slower still if all used the mode. So canaries that clearly lose make a probe by all unnecessary, and their result
sets how long the budget has to be saved for one.

Canaries and others are measured in the same epoch. A slow device among the canaries may delay a probe but not prevent
it: the next canaries are other generations.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from outrider.selection.epoch_samples import ThroughputSample, shortfall, trimmed_mean
from outrider.selection.modes import SpeculationMode

_MANY = 12  # generations, of which three are canaries, so that one odd one among them is left out
_LOST = 0.6  # of the others' speed: lower, and the mode has lost. Lax, as a canary also waits in the others' long steps
_UNSEEN_LOSS = 0.1
_MOST_BEHIND = 3.0  # cap of the factor by which the canaries' slowdown of the others is extrapolated to all


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """What canaries found.

    Attributes:
        ratio: the speed all should have to that of the mode in use.
        load: the mean number of active generations then.
    """

    mode: SpeculationMode
    ratio: float
    load: float
    at_s: float

    @property
    def loss(self) -> float:
        """What a try by all should lose: so much, and what canaries cannot show."""
        return max(0.0, 1.0 - self.ratio) + _UNSEEN_LOSS

    @property
    def lost(self) -> bool:
        """Whether the mode lost so clearly that no probe by all is needed."""
        return self.ratio < _LOST


def canary_count(generations: int) -> int:
    """How many are sent; 0 where a try by all costs no more."""
    if generations < 2:
        return 0
    return 3 if generations >= _MANY else 1


@dataclass(slots=True, eq=False)
class Canaries:
    """Those that are out, for a mode. Mutable."""

    mode: SpeculationMode | None = None
    out: frozenset[str] = frozenset()
    _sent: set[str] = field(default_factory=set)  # of those that are active, who was one

    def send(self, mode: SpeculationMode, generations: Collection[str]) -> None:
        """Send those that began last and were none before: they have most to come."""
        if self._sent.issuperset(generations):
            self._sent.clear()
        fresh = [name for name in reversed(list(generations)) if name not in self._sent]
        self.mode, self.out = mode, frozenset(fresh[: canary_count(len(generations))])
        self._sent |= self.out

    def recall(self) -> None:
        """None are out any more."""
        self.mode, self.out = None, frozenset()

    def ended(self, generation: str) -> None:
        self._sent.discard(generation)
        self.out -= {generation}
        if not self.out:
            self.mode = None

    def rounds_each(self, samples: Mapping[str, ThroughputSample]) -> float:
        """Of the canary that has the fewest."""
        return min((float(samples[name].rounds) for name in self.out), default=0.0)

    def ratio(self, samples: Mapping[str, ThroughputSample], known: float | None) -> float | None:
        """Predict the speed ratio to the mode in use if all switched; None if canaries or others made no round.

        Args:
            samples: of all in one epoch.
            known: tokens per second that the mode in use brought one generation before.
        """
        mine = _speed(sample for name, sample in samples.items() if name in self.out)
        theirs = _speed(sample for name, sample in samples.items() if name not in self.out)
        if mine is None or not theirs:
            return None
        slowed = min(1.0, shortfall(theirs, known) * min(len(samples) / len(self.out), _MOST_BEHIND))
        return (1.0 - slowed) * mine / theirs


def _speed(samples: Iterable[ThroughputSample]) -> float | None:
    speeds = [sample.tokens / sample.seconds for sample in samples if sample.seconds]
    return trimmed_mean(speeds) if speeds else None
