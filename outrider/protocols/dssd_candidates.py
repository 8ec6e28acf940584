"""dssd_candidates: dssd's blocks go up; draws from the target come down in place of its row.

A draw x from the target serves as the correction with probability max(0, 1 - q(x) / p(x)), on average
TV = sum max(0, p - q) over draws. All m fail with probability (1 - TV)^m; then the row itself crosses, one RTT later.

TV differs from position to position, and a position is rejected with probability TV. With TV spread as
Beta(a, b), a + b = ``_SPREAD``, those that are rejected have TV spread as Beta(a + 1, b), and

    E[(1 - TV)^m | rejected] = B(a + 1, b + m) / B(a + 1, b)

which falls as m^-(a + 1), not exponentially: positions where the models nearly agree fail most, and need many draws.
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
# Language models agree at most positions and differ much at a few: flatter than uniform. Assumed, not fitted.
_SPREAD = 1.0
_LEAST = 1e-3
# Of a link not measured yet: round trips cost nothing and bits alike.
_UNKNOWN = Csi(up_bps=1e9, down_bps=1e9, per_up=0.0, per_down=0.0, rtt_s=0.0)


class DssdCandidates(Dssd):
    """Scalars up, draws down."""

    name = "dssd_candidates"
    code = 5

    def deferral(self, terms: RoundTerms) -> Deferral | None:
        """As many draws as serve the device soonest; a greedy request leaves nothing to draw."""
        return None if terms.params.greedy else Deferral(terms.wire.row_field, candidate_count(terms))

    def source_s(self, terms: RoundTerms, row_s: float) -> float:
        """The draws down; where they fail, one more exchange for the row."""
        count = candidate_count(terms)
        if not count or terms.csi is None:
            return row_s
        support = expected_support(terms.params, terms.wire.vocab_size)
        failed = failure_probability(count, terms.rejection_mass)
        again_s = failed * fallback_s(terms.wire, terms.csi, support)
        return candidates_bits(count, terms.wire, support) * down_s(terms.csi, 1.0) + again_s


def candidate_count(terms: RoundTerms) -> int:
    """The number of candidates that gets a correction to the device soonest; 0 if that is the row itself."""
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
    """None of the candidates serves, given a rejection."""
    mass = min(max(rejection_mass, _LEAST), 1.0 - _LEAST)
    rest = (1.0 - mass) * _SPREAD
    return exp(lgamma(rest + count) - lgamma(_SPREAD + 1.0 + count) + lgamma(_SPREAD + 1.0) - lgamma(rest))


def fallback_s(wire: WireFormat, csi: Csi, support: int) -> float:
    """What the exchange takes in which a row is asked for after all: an order with the row, for an empty answer."""
    return exchange_s(csi, order_bits(wire) + row_bits(wire, support), envelope_bits(0))


def candidates_bits(count: int, wire: WireFormat, support: int) -> int:
    """Draws from the target in its place. Of m, 2 sqrt(m) are taken to differ: likely tokens repeat."""
    distinct = max(1, min(count, support, round(2.0 * sqrt(count))))
    return expected_candidate_bits(wire, count, distinct)


@lru_cache(maxsize=64)
def _options(wire: WireFormat, support: int) -> tuple[tuple[int, float], ...]:
    """Counts to choose from, and their bits."""
    return tuple((count, candidates_bits(count, wire, support)) for count in _COUNTS)
