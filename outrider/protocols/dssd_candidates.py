"""dssd_candidates: blocks go up as in dssd; draws from the target come down in place of its row.

A draw x from the target serves as the correction with probability max(0, 1 - q(x) / p(x)), on average
TV = sum max(0, p - q) over draws. All m fail with probability (1 - TV)^m; then the row itself is sent, one RTT later.

TV differs between positions, and a position is rejected with probability TV. If TV is distributed as Beta(a, b) with
a + b = ``_SPREAD``, then over rejected positions it is distributed as Beta(a + 1, b), and

    E[(1 - TV)^m | rejected] = B(a + 1, b + m) / B(a + 1, b)

This falls as m^-(a + 1), not exponentially: positions where the models nearly agree fail most and need many draws.
"""

from functools import lru_cache
from math import exp, lgamma, sqrt

from outrider.contracts.exchanged import Deferral, WireFormat
from outrider.contracts.link import Csi
from outrider.link.latency import down_s, exchange_s
from outrider.protocols.corrections import expected_candidate_bits
from outrider.protocols.dssd import Dssd, row_bits
from outrider.protocols.payload import expected_support, order_bits
from outrider.protocols.protocol import RoundTerms
from outrider.wire.envelope import envelope_bits

_COUNTS = tuple(2**n for n in range(3, 11))
# Language models agree at most positions and differ much at a few: mass at both ends. Assumed, not fitted.
_SPREAD = 1.0
_LEAST = 1e-3  # keeps both parameters of the Beta distribution above 0
# Used for a link not measured yet: round trips cost nothing, bits cost the same both ways.
_UNKNOWN = Csi(up_bps=1e9, down_bps=1e9, per_up=0.0, per_down=0.0, rtt_s=0.0)


class DssdCandidates(Dssd):
    """Sends scalars up and draws down."""

    name = "dssd_candidates"
    code = 5

    def deferral(self, terms: RoundTerms) -> Deferral | None:
        """Return a deferral with the fastest number of draws; None for a greedy request, which has nothing to draw."""
        return None if terms.params.greedy else Deferral(terms.wire.row_field, candidate_count(terms))

    def source_s(self, terms: RoundTerms, row_s: float) -> float:
        """Return the seconds of the draws down, and of another exchange for the row where they fail."""
        count = candidate_count(terms)
        if not count or terms.csi is None:
            return row_s
        support = expected_support(terms.params, terms.wire.vocab_size)
        failed = failure_probability(count, terms.rejection_mass)
        again_s = failed * fallback_s(terms.wire, terms.csi, support)
        return candidates_bits(count, terms.wire, support) * down_s(terms.csi, 1.0) + again_s


def candidate_count(terms: RoundTerms) -> int:
    """Return the number of candidates that gets a correction to the device soonest; 0 if that is the row itself."""
    wire, link = terms.wire, terms.csi or _UNKNOWN
    support = expected_support(terms.params, wire.vocab_size)
    again_s = fallback_s(wire, link, support)
    best, best_s = 0, down_s(link, row_bits(wire, support))
    for count, bits in _options(wire, support):
        seconds = down_s(link, bits) + failure_probability(count, terms.rejection_mass) * again_s
        if seconds < best_s:
            best, best_s = count, seconds
    return best


def failure_probability(count: int, rejection_mass: float) -> float:
    """Return the probability that no candidate serves, given a rejection."""
    mass = min(max(rejection_mass, _LEAST), 1.0 - _LEAST)
    # b = (1 - TV) _SPREAD, a + 1 + b = _SPREAD + 1. Log gammas avoid overflow for large counts.
    rest = (1.0 - mass) * _SPREAD
    return exp(lgamma(rest + count) - lgamma(_SPREAD + 1.0 + count) + lgamma(_SPREAD + 1.0) - lgamma(rest))


def fallback_s(wire: WireFormat, csi: Csi, support: int) -> float:
    """Return the seconds of the exchange that asks for a row after all: an order with the row, an empty answer."""
    return exchange_s(csi, order_bits(wire) + row_bits(wire, support), envelope_bits(0))


def candidates_bits(count: int, wire: WireFormat, support: int) -> int:
    """Return the bits of ``count`` draws. 2 sqrt(count) of them are assumed to differ, as likely tokens repeat."""
    distinct = max(1, min(count, support, round(2.0 * sqrt(count))))
    return expected_candidate_bits(wire, count, distinct)


@lru_cache(maxsize=64)
def _options(wire: WireFormat, support: int) -> tuple[tuple[int, float], ...]:
    """Return the counts to choose from and their bits."""
    return tuple((count, candidates_bits(count, wire, support)) for count in _COUNTS)
