"""Generations without an end under a speculation tuner, in virtual time: each mode's speed at each load is given."""

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from outrider.selection.modes import DRAFT, NONE, SpeculationMode
from outrider.selection.tuning.speculation_tuner import SpeculationTuner

Speed = Callable[
    [SpeculationMode, int, float], float
]  # mode, active generations, now: tokens per second of one of them
DRAFT_YIELD = (1, 1, 2, 3, 5)  # tokens of a round with a draft, as often each
DRAFTER_S = 0.4  # until a new response's drafter has its prefix


@dataclass
class World:
    """One run; what happened is in its attributes."""

    speed: Speed
    seed: int = 0
    noise: float = 0.05  # of a round's time
    slow: dict[str, float] = field(default_factory=dict)  # times as long that a generation's rounds with a draft take
    late: dict[SpeculationMode, float] = field(
        default_factory=dict
    )  # share of rounds that break their promise; empty: no promises
    arms_to_choose: tuple[SpeculationMode, ...] = (NONE, DRAFT)

    def __post_init__(self) -> None:
        """Begin with nobody."""
        self.tuner = SpeculationTuner(self.arms_to_choose, 0.0)
        self.now_s = 0.0
        self.modes: list[tuple[float, SpeculationMode]] = [(0.0, NONE)]  # since when which was in use
        self.tokens: dict[float, int] = defaultdict(int)  # in each second
        self._rng = random.Random(self.seed)
        self._events: list[tuple[float, str, int, float]] = []  # at, generation, tokens, round's length
        self.live: list[str] = []
        self._ready_at_s: dict[str, float] = {}
        self._named = 0

    def end(self, generations: Iterable[str]) -> None:
        """These are over."""
        for name in generations:
            self.live.remove(name)
            self.tuner.ended(name, self.now_s)

    def load(self, generations: int) -> None:
        """So many are active from now on; a drafter of one that comes takes a while."""
        self.end(list(self.live)[generations:])
        for _ in range(generations - len(self.live)):
            self._named += 1
            name = f"g{self._named}"
            self.live.append(name)
            self.tuner.began(name, self.now_s)
            self._ready_at_s[name] = self.now_s + DRAFTER_S
            self._begin(name)

    def until(self, end_s: float) -> "World":
        """Let it go on."""
        while self._events and self._events[0][0] <= end_s:
            self.now_s, name, tokens, round_s = heapq.heappop(self._events)
            if name not in self.live:
                continue
            if self._ready_at_s.get(name, float("inf")) <= self.now_s:
                self._ready_at_s.pop(name)
                self.tuner.ready(name)
            mode = self.tuner.mode
            late = self._rng.random() < self.late[mode] if self.late else None
            self.tokens[int(self.now_s)] += tokens
            self.tuner.round(name, tokens, round_s, self.now_s, late=late)
            if self.tuner.mode is not self.modes[-1][1]:
                self.modes.append((self.now_s, self.tuner.mode))
            self._begin(name)
        self.now_s = end_s
        return self

    def share(self, mode: SpeculationMode, since_s: float) -> float:
        """Of the time since then, with this mode in use."""
        spans = zip(self.modes, [*self.modes[1:], (self.now_s, NONE)], strict=True)
        used_s = sum(max(0.0, end - max(since_s, begin)) for (begin, used), (end, _) in spans if used is mode)
        return used_s / (self.now_s - since_s)

    def rate(self, since_s: float, until_s: float) -> float:
        """Tokens per second of all together."""
        return sum(self.tokens[second] for second in range(int(since_s), int(until_s))) / (until_s - since_s)

    def _begin(self, name: str) -> None:
        mode = self.tuner.mode
        drafts = mode is not NONE and not (mode.drafts and name in self._ready_at_s)
        speed = self.speed(mode if drafts else NONE, len(self.live), self.now_s)
        mean = sum(DRAFT_YIELD) / len(DRAFT_YIELD)
        tokens, expected = (self._rng.choice(DRAFT_YIELD), mean) if drafts else (1, 1.0)
        round_s = expected / speed * max(0.2, self._rng.gauss(1.0, self.noise))
        round_s *= self.slow.get(name, 1.0) if drafts else 1.0
        heapq.heappush(self._events, (self.now_s + round_s, name, tokens, round_s))


def crossing(at: float, steepness: float = 0.5) -> Speed:
    """Drafting brings more below a load and less above it; a full server: speed falls with the load."""

    def speed(mode: SpeculationMode, load: int, now_s: float) -> float:  # noqa: ARG001
        alone = 60.0 / (1.0 + 0.2 * load)
        return alone if mode is NONE else alone * (at / load) ** steepness

    return speed


def constant(ratio: float) -> Speed:
    """Drafting brings so many times as much at any load."""

    def speed(mode: SpeculationMode, load: int, now_s: float) -> float:  # noqa: ARG001
        return 60.0 / (1.0 + 0.2 * load) * (1.0 if mode is NONE else ratio)

    return speed
