"""Table I from its own AALs and rounds: latency and throughput by eq. 5 to 10, and their deviation from the print."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.bench.papers.wisv.acceptance import fitted
from lab.bench.papers.wisv.published import RATES_BPS, RTT_S, TABLE_1, WisvRow, printed
from lab.bench.papers.wisv.rounds import (
    TABLE_1_POINT,
    Method,
    OperatingPoint,
    link,
    mismatches,
    round_s,
)
from outrider.contracts.link import Csi
from outrider.link.latency import exchange_s, up_s
from outrider.wire.bits import id_bits


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


@dataclass(frozen=True, slots=True)
class PaidStates:
    """Upload that a printed WISV latency leaves time for, compared with two explanations.

    Attributes:
        paid: fp16 hidden states of a round, after RTT, drafting and ids.
        behind: 2 * (K - draft tokens before the first mismatch): fp32 states from the first mismatch on.
        behind_error: of the latency if that is what was charged.
    """

    row: WisvRow
    paid: float
    behind: float
    behind_error: float


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


@dataclass(frozen=True, slots=True)
class Times:
    """Machine times implied by the latencies."""

    step_s: float  # per draft token
    verify_s: float  # per block; a fitted one may be negative


def fitted_times(*, verify: bool) -> Times:
    """Fit the greedy rows' latencies: least squares of relative errors, with verification fitted or 0."""
    rows = [row for rate_bps in RATES_BPS for row in printed(Method.SD_GREEDY, rate_bps)]
    latencies = np.array([row.latency_s for row in rows])
    counts = np.array([row.rounds for row in rows])
    free = OperatingPoint(step_s=0.0, verify_s=0.0)
    links = np.array([_priced(row, row.method, free).latency_s for row in rows])
    columns = [counts * [row.window for row in rows], counts][: 1 + verify]
    solved = np.linalg.lstsq(np.stack(columns, axis=1) / latencies[:, None], (latencies - links) / latencies)[0]
    return Times(float(solved[0]), float(solved[1]) if verify else 0.0)


def paid_states(point: OperatingPoint = TABLE_1_POINT) -> list[PaidStates]:
    """Paid states of every WISV row."""
    return [_paid(row, point) for row in TABLE_1 if row.method is Method.WISV_FULL]


def _priced(row: WisvRow, method: Method, point: OperatingPoint) -> Reproduced:
    matches = fitted(Method.SD_GREEDY, row.rate_bps).at_depths(row.window) if method is Method.WISV_SELECTIVE else ()
    seconds = round_s(method, link(row.rate_bps, RTT_S), row.window, mismatches(matches), point)
    latency_s, tokens_per_s = row.rounds * seconds, row.aal_tokens / seconds
    return Reproduced(
        row,
        method,
        latency_s,
        tokens_per_s,
        latency_s / row.latency_s - 1.0,
        tokens_per_s / row.tokens_per_s - 1.0,
    )


def _paid(row: WisvRow, point: OperatingPoint) -> PaidStates:
    csi = link(row.rate_bps, RTT_S)
    bare_s = row.window * point.step_s + point.verify_s + _ids_s(csi, row.window, point)
    state_s = up_s(csi, point.state_bits)
    behind = 2.0 * (row.window - fitted(Method.SD_GREEDY, row.rate_bps).accepted(row.window))
    return PaidStates(
        row,
        (row.latency_s / row.rounds - bare_s) / state_s,
        behind,
        row.rounds * (bare_s + behind * state_s) / row.latency_s - 1.0,
    )


def _ids_s(csi: Csi, window: int, point: OperatingPoint) -> float:
    ids = id_bits(point.vocab_size)
    return exchange_s(csi, ids + id_bits(window + 1) + point.overhead_bits, window * ids + point.overhead_bits)
