"""Token acceptances behind the AALs of Table I, and the speed of each method at any window by them.

b_i = min(1, first * exp(drift * i)),  i = 0 .. K - 1
AAL = as ``lab.simulation.acceptance_models.expected_tokens``, with or without a bonus token after a full block

Table I lists windows from 10 on. Below that the acceptance is extrapolated: it is nearly flat.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, inf

import numpy as np
from scipy.optimize import least_squares

from lab.bench.papers.wisv.published import RATES_BPS, RTT_S, TABLE_1, WisvRow, printed
from lab.bench.papers.wisv.rounds import TABLE_1_POINT, Method, OperatingPoint, link, mismatches, round_s
from lab.simulation.acceptance_models import expected_tokens

LONGEST = 64
A40_PASS_S = 8.03e9 * 2 / 696e9  # reads Llama-3.1-8B's fp16 weights once: the minimum of a pass on the testbed's server
_BOUNDS = ((1e-6, -0.1), (1.0 - 1e-9, 0.1))  # of ``first`` and ``drift``


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Probability that a draft token is accepted, given that those before it were."""

    first: float
    drift: float = 0.0  # of its logarithm, per position

    def at_depths(self, window: int) -> tuple[float, ...]:
        return tuple(min(1.0, self.first * exp(self.drift * depth)) for depth in range(window))

    def tokens(self, window: int, *, bonus: bool) -> float:
        return expected_tokens(self.at_depths(window), bonus=bonus)


def fit(rows: Sequence[WisvRow]) -> Acceptance:
    """Least squares of the relative errors of AAL over a method's rows, without a bonus token."""

    def errors(numbers: Sequence[float]) -> list[float]:
        found = Acceptance(*numbers)
        return [found.tokens(row.window, bonus=False) / row.aal_tokens - 1.0 for row in rows]

    best = least_squares(errors, (0.9, 0.0), bounds=_BOUNDS, xtol=1e-12, ftol=1e-12)
    return Acceptance(*best.x.tolist())


@cache
def fitted(method: Method, rate_bps: float) -> Acceptance:
    """The fit to a rate's rows. Both uploads of WISV make the same decisions."""
    of = Method.WISV_FULL if method is Method.WISV_SELECTIVE else method
    return fit(printed(of, rate_bps))


@dataclass(frozen=True, slots=True)
class Speed:
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


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A printed row's AAL and rounds at our cost of a round; errors are ours over printed, minus 1.

    The selective upload is listed with the full one's row: Table I does not print it, and it has no errors.
    """

    row: WisvRow
    method: Method
    latency_s: float
    tokens_per_s: float
    latency_error: float | None
    throughput_error: float | None


def reproduce(point: OperatingPoint = TABLE_1_POINT) -> list[Reproduced]:
    """All rows in the table's order, the selective upload after each full one."""
    found = []
    for row in TABLE_1:
        found.append(_priced(row, row.method, point))
        if row.method is Method.WISV_FULL:
            beside = _priced(row, Method.WISV_SELECTIVE, point)
            found.append(replace(beside, latency_error=None, throughput_error=None))
    return found


def worst(found: Sequence[Reproduced], method: Method) -> float:
    """The largest error of a method's latencies and throughputs, of either sign."""
    errors = [(one.latency_error, one.throughput_error) for one in found if one.method is method]
    return max(abs(error) for pair in errors for error in pair if error is not None)


def fitted_step_s() -> float:
    """Time of a drafted token: least squares of relative errors of the greedy rows' latencies."""
    rows = [row for rate_bps in RATES_BPS for row in printed(Method.SD_GREEDY, rate_bps)]
    latencies = np.array([row.latency_s for row in rows])
    links = np.array([_priced(row, row.method, OperatingPoint(step_s=0.0)).latency_s for row in rows])
    drafted = np.array([row.rounds * row.window for row in rows])
    solved = np.linalg.lstsq((drafted / latencies)[:, None], (latencies - links) / latencies)[0]
    return float(solved[0])


def _priced(row: WisvRow, method: Method, point: OperatingPoint) -> Reproduced:
    matches = fitted(Method.SD_GREEDY, row.rate_bps).at_depths(row.window) if method is Method.WISV_SELECTIVE else ()
    seconds = round_s(method, link(row.rate_bps, RTT_S), row.window, mismatches(matches), point)
    latency_s, tokens_per_s = row.rounds * seconds, row.aal_tokens / seconds
    errors = latency_s / row.latency_s - 1.0, tokens_per_s / row.tokens_per_s - 1.0
    return Reproduced(row, method, latency_s, tokens_per_s, *errors)
