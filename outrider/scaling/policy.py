"""How many replicas there are to be. Pure: what is seen now and what is remembered in, a decision and a memory out.

A replica is of use only once it has started, so what counts is the demand then: the present one and, where it has been
growing, its growth over the time that a start takes. That time is measured from each replica that was asked for until
it runs, a node's arrival included. More are asked for at once. Fewer are kept only when for ``down_after_s`` not one
decision needed more, and never fewer than the active promises need where they are.
"""

from dataclasses import dataclass, replace
from math import ceil

from outrider.contracts.errors import ParameterError
from outrider.scaling.trend import Sample, ahead

_SAMPLES = 60  # of a window, at most
_NEAR = 1e-9  # a demand of exactly two replicas needs two
_OLD = 0.3  # of the time that the latest start took, in what is remembered of all


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """What an operator sets.

    Attributes:
        least: replicas there always are; ``most``: that there may be.
        target_load: share of what replicas allow that is to be used.
        down_after_s: for how long fewer must have been enough.
        cold_start_s: what a start takes, until one was measured.
        trend_s: how far back a trend is looked for; at least the time that a start takes.
    """

    least: int
    most: int
    target_load: float = 0.8
    down_after_s: float = 300.0
    cold_start_s: float = 60.0
    trend_s: float = 1200.0

    def __post_init__(self) -> None:
        """Refuse rules that nothing can follow."""
        if not 1 <= self.least <= self.most:
            raise ParameterError("least", f"a number from 1 to most ({self.most})", self.least)
        if not 0.0 < self.target_load <= 1.0:
            raise ParameterError("target_load", "above 0 and at most 1", self.target_load)


@dataclass(frozen=True, slots=True)
class ScalingInput:
    """How it stands.

    Attributes:
        now_s: absolute; never goes back.
        running: replicas that serve; ``wanted``: that there are to be, as decided last.
        demand: in replicas, each filled to what it allows; None is not known. ``active``: of that, what has been begun.
        started_in_s: the longest that a replica says it took to start; 0 is not known.
    """

    now_s: float
    running: int
    wanted: int
    demand: float | None
    active: float = 0.0
    started_in_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ScalingState:
    """Between two decisions.

    Attributes:
        samples: of the demand, oldest first.
        needs: when how many were needed, oldest first, without those that a later one exceeds.
        asked_at_s: of replicas that were asked for and do not run yet.
        running: replicas that served.
        start_s: what a start took lately.
    """

    samples: tuple[Sample, ...] = ()
    needs: tuple[tuple[float, int], ...] = ()
    asked_at_s: tuple[float, ...] = ()
    running: int | None = None
    start_s: float | None = None


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """How many there are to be, and why: ``expected`` demand, in replicas, after ``ahead_s``."""

    count: int
    needed: int
    expected: float
    ahead_s: float


def decide(rules: ScalingRules, memory: ScalingState, seen: ScalingInput) -> tuple[ScalingDecision, ScalingState]:
    """What is to be now. While no demand is known nothing changes but what floor and ceiling ask for."""
    memory = _started(memory, seen)
    start_s = max(memory.start_s or 0.0, seen.started_in_s) or rules.cold_start_s
    window_s = max(rules.trend_s, start_s)
    if seen.demand is None:
        count = _within(rules, seen.wanted)
        return ScalingDecision(count, count, 0.0, start_s), _asked(memory, seen, count)
    samples = _sampled(memory.samples, (seen.now_s, seen.demand), window_s)
    expected = max(ahead(samples, seen.now_s, window_s, start_s), seen.active)
    needed = _whole(expected / rules.target_load)
    before = memory.needs or ((seen.now_s, seen.wanted),)  # whoever has just begun to look knows no reason for fewer
    needs = (*(one for one in before if one[1] > needed), (seen.now_s, needed))
    needs = tuple(one for one in needs if seen.now_s - one[0] <= rules.down_after_s)
    held = max(needs[0][1], _whole(seen.active))
    count = held if held <= seen.wanted else max(needed, _whole(seen.active), seen.wanted)
    count = _within(rules, count)
    memory = replace(memory, samples=samples, needs=needs)
    return ScalingDecision(count, needed, expected, start_s), _asked(memory, seen, count)


def _within(rules: ScalingRules, count: int) -> int:
    return min(max(count, rules.least), rules.most)


def _whole(replicas: float) -> int:
    return ceil(replicas - _NEAR)


def _sampled(samples: tuple[Sample, ...], newest: Sample, window_s: float) -> tuple[Sample, ...]:
    """With one more; the newest two in the place of one as long as they are close, so that memory is bounded."""
    kept = tuple(one for one in samples if newest[0] - one[0] <= window_s)
    if len(kept) >= 2 and newest[0] - kept[-2][0] < window_s / _SAMPLES:
        kept = kept[:-1]
    return (*kept, newest)


def _started(memory: ScalingState, seen: ScalingInput) -> ScalingState:
    """Take the time of those that run now and did not before; the longest waiting are the first to run."""
    if memory.running is None:
        return replace(memory, running=seen.running)
    more = max(0, seen.running - memory.running)
    begun, asked = memory.asked_at_s[:more], memory.asked_at_s[more:]
    start_s = memory.start_s
    for asked_at_s in begun:
        took_s = seen.now_s - asked_at_s
        start_s = took_s if start_s is None else max(took_s, _OLD * took_s + (1.0 - _OLD) * start_s)
    return replace(memory, running=seen.running, asked_at_s=asked, start_s=start_s)


def _asked(memory: ScalingState, seen: ScalingInput, count: int) -> ScalingState:
    """Remember since when there are too few; those that are not asked for any more are forgotten, the newest first."""
    missing = max(0, count - seen.running)
    asked = memory.asked_at_s[:missing]
    return replace(memory, asked_at_s=(*asked, *[seen.now_s] * (missing - len(asked))))
