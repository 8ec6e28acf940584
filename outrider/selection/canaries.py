"""Canaries: a few generations try a mode while all others go on as they are.

What a mode brings those who use it shows so at a fraction of what a try by all costs. What it costs everybody - rows,
and processors that a drafter takes from the verifier - shows in part: by how much the others are slower than the mode
in use was before, which would be more if all did as the canaries do. So canaries that clearly lose spare all a try, and
what others find tells how long a try has to be saved for.

Canaries and the others are measured in the same epoch, side by side. A slow device among the canaries may delay a try,
not prevent it: the next canaries are others.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from outrider.selection.epoch_samples import ThroughputSample, shortfall, trimmed_mean
from outrider.selection.modes import SpeculationMode

_MANY = 12  # generations, of which three are canaries, so that one odd one among them is left out
_LOST = 0.6  # times as fast as the others: a canary waits for their steps, which are longer than those of drafters
_UNSEEN_LOSS = 0.1
_MOST_BEHIND = 3.0  # times what a few cost the others that all are taken to cost at most


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
        """Whether nobody needs to."""
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
        """A response is over."""
        self._sent.discard(generation)
        self.out -= {generation}
        if not self.out:
            self.mode = None

    def rounds_each(self, samples: Mapping[str, ThroughputSample]) -> float:
        """Of the canary that has the fewest."""
        return min((float(samples[name].rounds) for name in self.out), default=0.0)

    def ratio(self, samples: Mapping[str, ThroughputSample], known: float | None) -> float | None:
        """Speed to that of the mode in use that all should have; None if canaries or others did nothing.

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
