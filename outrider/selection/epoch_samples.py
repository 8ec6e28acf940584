"""Throughput samples of one epoch of the speculation tuner: the speed of generations, and how many were active.

Each generation's speed is its own: committed tokens over the seconds of its rounds. They are put together by a trimmed
mean over generations, so that one slow or hostile device, or one odd request, is one of those that are left out. Of
three the middle one counts; of two or one there is nothing to leave out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_TRIMMED = 4  # one in so many is left out at either end
_NOISE = 0.05  # by which one epoch may be slower than another for no reason
_LEAST_JUDGED_ROUNDS = 4  # that had to keep a promise, of a generation, before its share of late ones is looked at


@dataclass(frozen=True, slots=True)
class EpochThroughput:
    load: float  # mean number of active generations
    tokens_per_s: float  # of one of them
    late: float | None  # share of rounds that broke a promise; None if too few had to keep one
    seconds: float
    variance: float = 0.0  # of the speed, relative, as far as it comes from how many tokens rounds commit


@dataclass(slots=True, eq=False)
class ThroughputSample:
    """One generation's committed rounds in the present epoch."""

    tokens: int = 0
    squares: int = 0  # of rounds' tokens, summed
    seconds: float = 0.0
    rounds: int = 0
    judged: int = 0  # rounds that had to keep a promise
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
    """How many generations are active, over time. Mutable."""

    def __init__(self, now_s: float) -> None:
        self.count = 0
        self._until_s = now_s
        self._busy_s = self._generation_s = 0.0

    def moves(self, by: int, now_s: float) -> None:
        """So many more are active from now on."""
        self.at(now_s)
        self.count += by

    def at(self, now_s: float) -> tuple[float, float]:
        """Seconds so far in which any was active, and seconds of all together."""
        passed_s, self._until_s = now_s - self._until_s, now_s
        self._busy_s += passed_s if self.count else 0.0
        self._generation_s += passed_s * self.count
        return self._busy_s, self._generation_s


class ActiveInterval:
    """Time since a moment, as far as any generation was active."""

    def __init__(self, activity: ActiveGenerations, now_s: float) -> None:
        self._activity = activity
        self._began = activity.at(now_s)

    def seconds(self, now_s: float) -> float:
        return self._activity.at(now_s)[0] - self._began[0]

    def load(self, now_s: float) -> float:
        """Mean number of active generations; 0 of no time."""
        busy_s, generation_s = self._activity.at(now_s)
        return (generation_s - self._began[1]) / (busy_s - self._began[0]) if busy_s > self._began[0] else 0.0


class EpochSamples:
    """The paces of all generations that count, over one epoch after another. Mutable.

    Rounds beside which a prompt was computed are kept apart: how many there are is chance, and they are far slower.
    """

    def __init__(self) -> None:
        self.undisturbed: dict[str, ThroughputSample] = {}
        self.disturbed: dict[str, ThroughputSample] = {}
        self._over: list[tuple[ThroughputSample, ThroughputSample]] = []  # of responses that ended in this epoch

    def began(self, generation: str) -> None:
        self.undisturbed[generation], self.disturbed[generation] = ThroughputSample(), ThroughputSample()

    def ended(self, generation: str) -> bool:
        """A response is over; whether it counted."""
        if generation not in self.undisturbed:
            return False
        self._over.append((self.undisturbed.pop(generation), self.disturbed.pop(generation)))
        return True

    def restart(self) -> None:
        self._over.clear()
        for generation in self.undisturbed:
            self.began(generation)

    def rounds_each(self) -> float:
        """Undisturbed, of those that had any, on the mean."""
        counts = [sample.rounds for sample in self._all() if sample.rounds]
        return sum(counts) / len(counts) if counts else 0.0

    def found(self, load: float, seconds: float, *, disturbed: bool) -> EpochThroughput | None:
        """What the epoch, at this load and so long, showed so far; None if nothing. Of all rounds, if ``disturbed``."""
        shown = [sample for sample in (self._whole() if disturbed else self._all()) if sample.rounds]
        if not shown or load <= 0.0:
            return None
        longest_s = min(seconds, max(sample.seconds for sample in shown))
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
    """Of at least one number: without a quarter at either end, the middle one of three."""
    count = len(values)
    out = 1 if count == 3 else count // _TRIMMED
    kept = sorted(values)[out : count - out]
    return sum(kept) / len(kept)


def shortfall(tokens_per_s: float, known: float | None) -> float:
    """Share by which a speed is under what is known, beyond noise; 0 if nothing is."""
    return max(0.0, 1.0 - tokens_per_s / known - _NOISE) if known else 0.0


def _variance(samples: Sequence[ThroughputSample]) -> float:
    """Of a mean over all rounds, relative to its square."""
    rounds, tokens = sum(sample.rounds for sample in samples), sum(sample.tokens for sample in samples)
    if not tokens:
        return 0.0
    return max(0.0, sum(sample.squares for sample in samples) * rounds / tokens**2 - 1.0) / rounds
