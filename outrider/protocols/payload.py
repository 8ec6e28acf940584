"""Payload bits to expect of a round's messages: the protocols' own formulas, at what a request's truncation leaves."""

from functools import lru_cache

from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.wire.bits import id_bits
from outrider.wire.envelope import envelope_bits

_CUT_SUPPORT = 256  # tokens that top-p or min-p usually leave, at most: an assumption
_ORDER_BODY_BITS = 16  # verdict and plan


def expected_support(params: SamplingParams, vocab_size: int) -> int:
    """Tokens that a request's truncation leaves of a distribution; exact for top-k, a usual number for the others."""
    if params.greedy:
        return 1
    kept = min(params.top_k, vocab_size) if params.top_k else vocab_size
    cut = params.top_p < 1.0 or params.min_p > 0.0
    return min(kept, _CUT_SUPPORT) if cut else kept


@lru_cache(maxsize=256)
def order_bits(wire: WireFormat) -> int:
    """An order that appends one token, downwards, without what a deferred correction is drawn from."""
    return envelope_bits(_ORDER_BODY_BITS + id_bits(wire.vocab_size))
