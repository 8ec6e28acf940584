"""Table I from its own AALs and rounds: latency and throughput by eq. 5 to 10, and their deviation from the print."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.bench.papers.wisv.acceptance import fitted
from lab.bench.papers.wisv.published import RATES_BPS, RTT_S, TABLE_1, WisvRow, printed
from lab.bench.papers.wisv.rounds import TABLE_1_POINT, Method, OperatingPoint, link, mismatches, round_s


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
