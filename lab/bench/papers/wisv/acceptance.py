"""Token acceptances behind the AALs of Table I: constant over a block, or drifting with depth.

drifting:  b_i = min(1, first * exp(drift * i)),  i = 0 .. K - 1     drift 0 is the constant one
AAL        as ``lab.simulation.yields.expected_tokens``, with or without a bonus token after a full block
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import exp

import numpy as np
from scipy.optimize import brentq, least_squares

from lab.bench.papers.wisv.published import ROUNDING, WisvRow, printed
from lab.bench.papers.wisv.rounds import Method
from lab.simulation.yields import expected_tokens

_LEAST, _MOST = 1e-6, 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Probability that a draft token is accepted, given that those before it were."""

    first: float
    drift: float = 0.0  # of its logarithm, per position

    def at_depths(self, window: int) -> tuple[float, ...]:
        """Of each token of a block."""
        return tuple(min(1.0, self.first * exp(self.drift * depth)) for depth in range(window))

    def tokens(self, window: int, *, bonus: bool) -> float:
        return expected_tokens(self.at_depths(window), bonus=bonus)

    def accepted(self, window: int) -> float:
        """Expected draft tokens accepted of a block."""
        return expected_tokens(self.at_depths(window)) - 1.0


@dataclass(frozen=True, slots=True)
class Fit:
    """The acceptance that comes nearest to the printed AALs.

    Attributes:
        errors: of each AAL relative to the printed one; least squares.
    """

    acceptance: Acceptance
    errors: tuple[float, ...]

    @property
    def worst(self) -> float:
        """The largest error, either way."""
        return max(map(abs, self.errors))


@dataclass(frozen=True, slots=True)
class MethodFits:
    """Both kinds of acceptance for a method's rows at a rate.

    Attributes:
        bounds: for each row, the range of constant acceptances whose AAL prints as the row's.
    """

    method: Method
    rate_bps: float
    bonus: bool
    bounds: tuple[tuple[float, float], ...]
    constant: Fit
    drifting: Fit

    @property
    def one_for_all(self) -> bool:
        """Whether one constant acceptance gives every printed AAL."""
        return max(low for low, _ in self.bounds) <= min(high for _, high in self.bounds)


def method_fits(method: Method, rate_bps: float, *, bonus: bool) -> MethodFits:
    """Fit both kinds to a method in Table I."""
    rows = printed(method, rate_bps)
    bounds = tuple(constant_bounds(row, bonus=bonus) for row in rows)
    constant, drifting = (fit(rows, drifts=drifts, bonus=bonus) for drifts in (False, True))
    return MethodFits(method, rate_bps, bonus, bounds, constant, drifting)


def constant_bounds(row: WisvRow, *, bonus: bool) -> tuple[float, float]:
    """Minimum and maximum constant acceptance whose AAL prints as the row's."""
    low, high = (_constant(row.aal_tokens + sign * ROUNDING, row.window, bonus=bonus) for sign in (-1, 1))
    return low, high


def fit(rows: Sequence[WisvRow], *, drifts: bool, bonus: bool) -> Fit:
    """Least squares of the relative errors of AAL over a method's rows."""

    def acceptance(numbers: Sequence[float]) -> Acceptance:
        return Acceptance(float(numbers[0]), float(numbers[1]) if drifts else 0.0)

    def errors(numbers: Sequence[float]) -> list[float]:
        found = acceptance(numbers)
        return [found.tokens(row.window, bonus=bonus) / row.aal_tokens - 1.0 for row in rows]

    start = np.array([0.9, 0.0][: 1 + drifts])
    least, most = np.array([_LEAST, -0.1][: len(start)]), np.array([_MOST, 0.1][: len(start)])
    best = least_squares(errors, start, bounds=(least, most), xtol=1e-12, ftol=1e-12)
    return Fit(acceptance(best.x), tuple(errors(best.x)))


@cache
def fitted(method: Method, rate_bps: float) -> Acceptance:
    """The fit to a rate's rows: drifting, without a bonus token. Both uploads of WISV make the same decisions."""
    of = Method.WISV_FULL if method is Method.WISV_SELECTIVE else method
    return fit(printed(of, rate_bps), drifts=True, bonus=False).acceptance


def _constant(aal_tokens: float, window: int, *, bonus: bool) -> float:
    return float(brentq(lambda b: Acceptance(b).tokens(window, bonus=bonus) - aal_tokens, _LEAST, _MOST, xtol=1e-12))
