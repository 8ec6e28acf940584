"""How many draws from the target to send in place of its row (``dssd_candidates``).

A draw x from the target serves as the correction with probability max(0, 1 - q(x) / p(x)), on average
TV = sum max(0, p - q) over draws. All m fail with probability (1 - TV)^m; then the row itself crosses, one RTT later.

TV differs from position to position, and a position is rejected with probability TV. With TV spread as
Beta(a, b), a + b = ``_SPREAD``, those that are rejected have TV spread as Beta(a + 1, b), and

    E[(1 - TV)^m | rejected] = B(a + 1, b + m) / B(a + 1, b)

which falls as m^-(a + 1), not exponentially: positions where the models nearly agree fail most, and need many draws.
"""

from functools import lru_cache
from math import exp, lgamma

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import Deferral, WireFormat
from outrider.contracts.link import Csi
from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.link.latency import down_s, exchange_s
from outrider.selection.acceptance import AcceptanceView
from outrider.selection.payload import candidates_bits, expected_support, order_bits, row_bits, row_request_bits
from outrider.selection.plans import rule_for
from outrider.selection.situation import RoundSituation

_COUNTS = tuple(2**n for n in range(3, 11))
# Language models agree at most positions and differ much at a few: flatter than uniform. Assumed, not fitted.
_SPREAD = 1.0
_LEAST = 1e-3
# Of a link not measured yet: round trips cost nothing and bits alike.
_UNKNOWN = Csi(up_bps=1e9, down_bps=1e9, per_up=0.0, per_down=0.0, rtt_s=0.0)


def candidate_count(rejection_mass: float, wire: WireFormat, csi: Csi | None, support: int | None = None) -> int:
    """The number of candidates that gets a correction to the device soonest; 0 if that is the row itself.

    Args:
        rejection_mass: expected TV, one less the ratio rule's token acceptance.
        wire: how a row and candidates are written.
        csi: state of the link; None if not measured yet.
        support: tokens the target's distribution is left with; None is all.
    """
    tokens = wire.vocab_size if support is None else support
    link = csi or _UNKNOWN
    again_s = fallback_s(wire, link, tokens)
    best, best_s = 0, down_s(link, row_bits(wire, tokens))
    for count, bits in _options(wire, tokens):
        seconds = down_s(link, bits) + failure_probability(count, rejection_mass) * again_s
        if seconds < best_s:
            best, best_s = count, seconds
    return best


def failure_probability(count: int, rejection_mass: float) -> float:
    """None of the candidates serves, given a rejection."""
    mass = min(max(rejection_mass, _LEAST), 1.0 - _LEAST)
    rest = (1.0 - mass) * _SPREAD
    return exp(lgamma(rest + count) - lgamma(_SPREAD + 1.0 + count) + lgamma(_SPREAD + 1.0) - lgamma(rest))


def fallback_s(wire: WireFormat, csi: Csi, support: int) -> float:
    """What the exchange takes in which a row is asked for after all."""
    return exchange_s(csi, order_bits(wire) + row_bits(wire, support), row_request_bits())


def rejection_mass(view: AcceptanceView, params: SamplingParams, wire: WireFormat) -> float:
    """Expected TV at the first draft position, where most rejections are."""
    return 1.0 - view.token_acceptance(rule_for(ProtocolName.DSSD_CANDIDATES, params, wire), 0)


def deferral_for(plan: DraftPlan, situation: RoundSituation) -> Deferral | None:
    """What the block of this plan asks the verifier to leave to the device; None if it draws corrections itself."""
    if plan.protocol is ProtocolName.DSSD:
        return Deferral(situation.wire.row_field)
    if plan.protocol is not ProtocolName.DSSD_CANDIDATES:
        return None
    return Deferral(situation.wire.row_field, expected_candidates(situation))


def expected_candidates(situation: RoundSituation) -> int:
    """``candidate_count`` as the situation has it."""
    params, wire = situation.params, situation.wire
    csi = None if situation.drafter is None else situation.drafter.csi
    mass = rejection_mass(situation.acceptance, params, wire)
    return candidate_count(mass, wire, csi, expected_support(params, wire.vocab_size))


@lru_cache(maxsize=64)
def _options(wire: WireFormat, support: int) -> tuple[tuple[int, float], ...]:
    """Counts to choose from, and their bits."""
    return tuple((count, candidates_bits(count, wire, support)) for count in _COUNTS)
