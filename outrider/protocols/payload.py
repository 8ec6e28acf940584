"""Estimate the payload bits of a round's messages from the protocols' formulas and a request's truncation."""

from functools import lru_cache

from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.wire.bits import id_bits
from outrider.wire.envelope import envelope_bits

_CUT_SUPPORT = 256  # most tokens that top-p or min-p are assumed to leave
_ORDER_BODY_BITS = 16  # verdict and plan


def expected_support(params: SamplingParams, vocab_size: int) -> int:
    """Return the number of tokens that truncation leaves; exact for top-k, an assumption for top-p and min-p."""
    if params.greedy:
        return 1
    kept = min(params.top_k, vocab_size) if params.top_k else vocab_size
    cut = params.top_p < 1.0 or params.min_p > 0.0
    return min(kept, _CUT_SUPPORT) if cut else kept


@lru_cache(maxsize=256)
def order_bits(wire: WireFormat) -> int:
    """Return the bits of an order that appends one token, without the source of a deferred correction."""
    return envelope_bits(_ORDER_BODY_BITS + id_bits(wire.vocab_size))
