"""The faster of WISV's two uploads: full (eq. 6) or selective (eq. 10), and the paper's rule.

The full one sends states that are not needed, the selective one takes a second exchange after a mismatch:

    break-even RTT = (K - M) * d * b_h / (rate * P(any mismatch)),  up to indices and headers

so it is not a fixed number of milliseconds: it depends on rate, window and acceptance.
"""

from dataclasses import dataclass

from lab.bench.papers.wisv.rounds import TABLE_1_POINT, Method, OperatingPoint, link, link_s, mismatches

RULE_RTT_S = 0.010  # full above, selective up to it (section VII-B)
RTTS_S = (0.001, 0.002, 0.005, 0.010, 0.020, 0.050, 0.100)
RATES_BPS = (5e6, 20e6, 50e6, 100e6, 172e6, 498e6)  # the last two are the testbed's, at 20 m and at 2 m


@dataclass(frozen=True, slots=True)
class Cell:
    """Both uploads on one link; ``mismatch`` is the probability of a single token, the same at each depth."""

    window: int
    mismatch: float
    rate_bps: float
    rtt_s: float
    full_s: float
    selective_s: float

    @property
    def best(self) -> Method:
        return Method.WISV_FULL if self.full_s < self.selective_s else Method.WISV_SELECTIVE

    @property
    def by_rule(self) -> Method:
        return Method.WISV_FULL if self.rtt_s > RULE_RTT_S else Method.WISV_SELECTIVE

    @property
    def lost_s(self) -> float:
        """Seconds that a round loses by the rule."""
        return 0.0 if self.by_rule is self.best else abs(self.full_s - self.selective_s)


def cell(window: int, mismatch: float, rate_bps: float, rtt_s: float, point: OperatingPoint = TABLE_1_POINT) -> Cell:
    found = mismatches((1.0 - mismatch,) * window)
    csi = link(rate_bps, rtt_s)
    full_s, selective_s = (
        link_s(method, csi, window, found, point) for method in (Method.WISV_FULL, Method.WISV_SELECTIVE)
    )
    return Cell(window, mismatch, rate_bps, rtt_s, full_s, selective_s)


def grid(window: int, mismatch: float, point: OperatingPoint = TABLE_1_POINT) -> list[Cell]:
    """Every RTT at every rate, RTT by RTT."""
    return [cell(window, mismatch, rate_bps, rtt_s, point) for rtt_s in RTTS_S for rate_bps in RATES_BPS]


def break_even_rtt_s(window: int, mismatch: float, rate_bps: float, point: OperatingPoint = TABLE_1_POINT) -> float:
    """The RTT above which the full upload is faster; 0 if it always is, infinity if it never is.

    Seconds on the link are linear in the RTT, and the selective upload pays one more with ``P(any mismatch)``.
    """
    found = mismatches((1.0 - mismatch,) * window)
    at_zero = cell(window, mismatch, rate_bps, 0.0, point)
    ahead_s = at_zero.full_s - at_zero.selective_s
    if ahead_s <= 0.0:
        return 0.0
    return ahead_s / found.any if found.any > 0.0 else float("inf")


@dataclass(frozen=True, slots=True)
class Uploads:
    """The two uploads of a block of ``window`` tokens, each a mismatch with the same probability."""

    window: int
    mismatch: float
    break_even_rtt_s: tuple[float, ...]  # at each of ``RATES_BPS``
    cells: tuple[Cell, ...]  # every RTT at every rate

    @property
    def wrong(self) -> tuple[Cell, ...]:
        """Cells in which the rule takes the slower upload."""
        return tuple(one for one in self.cells if one.lost_s > 0.0)


def uploads(window: int, mismatch: float, point: OperatingPoint = TABLE_1_POINT) -> Uploads:
    even = tuple(break_even_rtt_s(window, mismatch, rate_bps, point) for rate_bps in RATES_BPS)
    return Uploads(window, mismatch, even, tuple(grid(window, mismatch, point)))
