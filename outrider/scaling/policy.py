"""Decide the number of replicas. Pure: input and memory in, decision and memory out.

A new replica serves only after it has started, so the demand at that time counts: the present demand and, if it has
been growing, its growth over the time of a start. That time is measured for each replica from the request to running, a
node's arrival included. Replicas are added at once. They are removed only if no decision of the last ``down_after_s``
needed more, and never below what the active promises need.
"""

from dataclasses import dataclass, replace
from math import ceil

from outrider.scaling.trend import Sample, ahead

_SAMPLES = 60  # most samples in a window
_NEAR = 1e-9  # tolerance: a demand of exactly two replicas needs two
_OLD = 0.3  # weight of the latest start in the mean; a longer one replaces it


@dataclass(frozen=True, slots=True)
class ScalingRules:
    least: int  # lowest number of replicas; ``most``: highest
    most: int
    target_load: float = 0.8  # share of what replicas allow that is to be used
    down_after_s: float = 300.0  # for how long fewer replicas must have sufficed before some are removed
    cold_start_s: float = 60.0  # time of a start until one was measured
    trend_s: float = 1200.0  # window of a trend; at least the time of a start


@dataclass(frozen=True, slots=True)
class ScalingInput:
    now_s: float  # absolute; never decreases
    running: int  # replicas that serve; ``wanted``: number decided last
    wanted: int
    # in replicas, each filled to what it allows; None if not known. ``active``: the part of active responses.
    demand: float | None
    active: float = 0.0
    started_in_s: float = 0.0  # longest start that a replica reports; 0 is not known


@dataclass(frozen=True, slots=True)
class ScalingState:
    """Memory between two decisions."""

    samples: tuple[Sample, ...] = ()  # of the demand, oldest first
    # times and numbers of replicas needed, oldest first, without those that a later one exceeds
    needs: tuple[tuple[float, int], ...] = ()
    asked_at_s: tuple[float, ...] = ()  # request times of replicas that do not run yet
    running: int | None = None  # replicas that served at the last decision
    start_s: float | None = None  # recent time of a start


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """Number of replicas, and why: the ``expected`` demand, in replicas, after ``ahead_s``."""

    count: int
    needed: int
    expected: float
    ahead_s: float


def decide(rules: ScalingRules, memory: ScalingState, seen: ScalingInput) -> tuple[ScalingDecision, ScalingState]:
    """Return the decision and the new memory. While the demand is unknown, only ``least`` and ``most`` apply."""
    memory = _started(memory, seen)
    start_s = max(memory.start_s or 0.0, seen.started_in_s) or rules.cold_start_s
    window_s = max(rules.trend_s, start_s)
    if seen.demand is None:
        count = _within(rules, seen.wanted)
        return ScalingDecision(count, count, 0.0, start_s), _asked(memory, seen, count)
    samples = _sampled(memory.samples, (seen.now_s, seen.demand), window_s)
    expected = max(ahead(samples, seen.now_s, window_s, start_s), seen.active)
    needed = _whole(expected / rules.target_load)
    # at first the present number counts as needed, so that nothing is removed at once
    before = memory.needs or ((seen.now_s, seen.wanted),)
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
    """Add a sample, in place of the newest one if the last two are close, so that memory is bounded."""
    kept = tuple(one for one in samples if newest[0] - one[0] <= window_s)
    if len(kept) >= 2 and newest[0] - kept[-2][0] < window_s / _SAMPLES:
        kept = kept[:-1]
    return (*kept, newest)


def _started(memory: ScalingState, seen: ScalingInput) -> ScalingState:
    """Measure the starts of replicas that run now and did not before; the longest waiting are taken to run first."""
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
    """Record since when replicas are missing; of those no longer wanted the newest requests are forgotten."""
    missing = max(0, count - seen.running)
    asked = memory.asked_at_s[:missing]
    return replace(memory, asked_at_s=(*asked, *[seen.now_s] * (missing - len(asked))))
