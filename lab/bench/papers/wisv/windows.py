"""Each method at its own best window, and when drafting pays at all, by the fitted acceptances.

Table I lists windows from 10 on. Below that the acceptance is extrapolated: it is nearly flat.
"""

from dataclasses import dataclass
from math import inf

from lab.bench.papers.wisv.acceptance import fitted
from lab.bench.papers.wisv.published import RTT_S
from lab.bench.papers.wisv.rounds import TABLE_1_POINT, Method, OperatingPoint, link, mismatches, round_s

LONGEST = 64
A40_PASS_S = 8.03e9 * 2 / 696e9  # reads Llama-3.1-8B's fp16 weights once: the minimum of a pass on the testbed's server


@dataclass(frozen=True, slots=True)
class Speed:
    """A method at one window and rate."""

    method: Method
    rate_bps: float
    bonus: bool
    window: int
    aal_tokens: float
    round_s: float
    tokens_per_s: float
    worth_pass_s: float  # a pass of the target, for a block or a token alike: above this, drafting is faster


def speed(
    method: Method,
    rate_bps: float,
    window: int,
    *,
    bonus: bool,
    rtt_s: float = RTT_S,
    point: OperatingPoint = TABLE_1_POINT,
) -> Speed:
    """Speed by the acceptance fitted at that rate, at any RTT."""
    strict = fitted(Method.SD_GREEDY, rate_bps).at_depths(window)
    seconds = round_s(method, link(rate_bps, rtt_s), window, mismatches(strict), point)
    tokens = fitted(method, rate_bps).tokens(window, bonus=bonus)
    worth_s = seconds / (tokens - 1.0) if tokens > 1.0 else inf  # (round + pass) / tokens < pass
    return Speed(method, rate_bps, bonus, window, tokens, seconds, tokens / seconds, worth_s)


def best_speed(method: Method, rate_bps: float, *, bonus: bool, point: OperatingPoint = TABLE_1_POINT) -> Speed:
    """Speed at the window with the most tokens per second, 1 to 64."""
    speeds = [speed(method, rate_bps, window, bonus=bonus, point=point) for window in range(1, LONGEST + 1)]
    return max(speeds, key=lambda one: one.tokens_per_s)
