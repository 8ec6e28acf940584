"""Throughput of active generations in one epoch of the speculation tuner, as a trimmed mean over generations.

A generation's speed is its committed tokens over the seconds of its rounds. The trimmed mean leaves out a single slow
or hostile device, or a single unusual request. Of three generations only the middle one counts; of two or one all do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_TRIMMED = 4  # one in so many is left out at either end
_NOISE = 0.05  # share by which one epoch may be slower than another by chance
_LEFT = 1.3  # two loads that differ by more than this ratio, and by more than one generation, share no epoch
_LEAST_JUDGED_ROUNDS = 4  # with a promise to keep, for a generation's share of late rounds to count


@dataclass(frozen=True, slots=True)
class EpochThroughput:
    load: float  # mean number of active generations
    tokens_per_s: float  # of one of them
    late: float | None  # share of rounds slower than promised; None if too few had a promise
    seconds: float
    variance: float = 0.0  # of the speed, relative to its square, due to the varying number of tokens of rounds


@dataclass(slots=True, eq=False)
class ThroughputSample:
    """Sums over one generation's committed rounds in the present epoch. Mutable."""

    tokens: int = 0
    squares: int = 0  # sum of squares of the rounds' tokens
    seconds: float = 0.0
    rounds: int = 0
    judged: int = 0  # rounds with a promise to keep
    late: int = 0  # of these

    def plus(self, other: "ThroughputSample") -> "ThroughputSample":
        return ThroughputSample(
            self.tokens + other.tokens,
            self.squares + other.squares,
            self.seconds + other.seconds,
            self.rounds + other.rounds,
            self.judged + other.judged,
            self.late + other.late,
        )


class ActiveGenerations:
    """Counts active generations and integrates their number over time. Mutable."""

    def __init__(self, now_s: float) -> None:
        self.count = 0
        self._until_s = now_s
        self._busy_s = self._generation_s = 0.0

    def change(self, by: int, now_s: float) -> None:
        self.at(now_s)
        self.count += by

    def at(self, now_s: float) -> tuple[float, float]:
        """Return the seconds so far in which any generation was active, and generation-seconds."""
        passed_s, self._until_s = now_s - self._until_s, now_s
        self._busy_s += passed_s if self.count else 0.0
        self._generation_s += passed_s * self.count
        return self._busy_s, self._generation_s


class ActiveInterval:
    """Interval from ``now_s`` on, of which only time with an active generation counts."""

    def __init__(self, activity: ActiveGenerations, now_s: float) -> None:
        self._activity = activity
        self._began = activity.at(now_s)

    def seconds(self, now_s: float) -> float:
        return self._activity.at(now_s)[0] - self._began[0]

    def load(self, now_s: float) -> float:
        """Return the mean number of active generations; 0 if none was active."""
        busy_s, generation_s = self._activity.at(now_s)
        return (generation_s - self._began[1]) / (busy_s - self._began[0]) if busy_s > self._began[0] else 0.0


class EpochSamples:
    """Throughput samples of all generations that follow the tuner, in the present epoch. Mutable.

    Rounds beside a prefill (disturbed) are kept apart: they are far slower, and their number is chance.
    """

    def __init__(self) -> None:
        self.undisturbed: dict[str, ThroughputSample] = {}
        self.disturbed: dict[str, ThroughputSample] = {}
        self._over: list[tuple[ThroughputSample, ThroughputSample]] = []  # of responses that ended in this epoch

    def began(self, generation: str) -> None:
        self.undisturbed[generation], self.disturbed[generation] = ThroughputSample(), ThroughputSample()

    def ended(self, generation: str) -> bool:
        """Note the end of a response; its samples stay in the epoch. Return whether it counted."""
        if generation not in self.undisturbed:
            return False
        self._over.append((self.undisturbed.pop(generation), self.disturbed.pop(generation)))
        return True

    def restart(self) -> None:
        self._over.clear()
        for generation in self.undisturbed:
            self.began(generation)

    def mean_rounds(self) -> float:
        """Return the mean number of undisturbed rounds of the generations that had any."""
        counts = [sample.rounds for sample in self._all() if sample.rounds]
        return sum(counts) / len(counts) if counts else 0.0

    def found(self, load: float, seconds: float, *, disturbed: bool) -> EpochThroughput | None:
        """Return the epoch's result so far; None if there were no rounds. ``disturbed``: count disturbed rounds too."""
        shown = [sample for sample in (self._whole() if disturbed else self._all()) if sample.rounds]
        if not shown or load <= 0.0:
            return None
        longest_s = min(seconds, max(sample.seconds for sample in shown))
        # Generations with less than half of the longest time are too short a sample of their speed.
        steady = [sample for sample in shown if 2.0 * sample.seconds >= longest_s]
        judged = [sample.late / sample.judged for sample in shown if sample.judged >= _LEAST_JUDGED_ROUNDS]
        speed = trimmed_mean([sample.tokens / sample.seconds for sample in steady])
        return EpochThroughput(load, speed, trimmed_mean(judged) if judged else None, seconds, _variance(steady))

    def _all(self) -> list[ThroughputSample]:
        return [*(sample for sample, _ in self._over), *self.undisturbed.values()]

    def _whole(self) -> list[ThroughputSample]:
        both = [*self._over, *zip(self.undisturbed.values(), self.disturbed.values(), strict=True)]
        return [one.plus(other) for one, other in both]


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without a quarter of the values at either end; of three the middle one. Needs one value."""
    count = len(values)
    out = 1 if count == 3 else count // _TRIMMED
    kept = sorted(values)[out : count - out]
    return sum(kept) / len(kept)


def shortfall(tokens_per_s: float, known: float | None) -> float:
    """Return the share by which a speed is below the one known, beyond noise; 0 if none is known."""
    return max(0.0, 1.0 - tokens_per_s / known - _NOISE) if known else 0.0


def _variance(samples: Sequence[ThroughputSample]) -> float:
    """Return the variance of the mean of tokens per round, relative to the mean's square."""
    rounds, tokens = sum(sample.rounds for sample in samples), sum(sample.tokens for sample in samples)
    if not tokens:
        return 0.0
    return max(0.0, sum(sample.squares for sample in samples) * rounds / tokens**2 - 1.0) / rounds


def are_apart(load: float, other: float) -> bool:
    """Whether two loads differ too much for one epoch: by the ratio ``_LEFT``, and by more than one generation."""
    least, most = sorted((load, other))
    return most - least > 1.0 and most > _LEFT * least
