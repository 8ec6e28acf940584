"""Payload bits to expect of a round's messages: the protocols' own formulas, at what a request's truncation leaves."""

from dataclasses import replace
from functools import lru_cache
from math import sqrt

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.protocols import dssd, dssd_candidates
from outrider.protocols.registry import message_bits
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


def answer_bits(plan: DraftPlan, wire: WireFormat, support: int) -> int:
    """A full block, upwards, without a correction's id."""
    return message_bits(replace(wire, top_k=min(wire.top_k or wire.vocab_size, support)), plan)


def row_request_bits() -> int:
    """The answer that asks for a row, upwards."""
    return envelope_bits(0)


@lru_cache(maxsize=256)
def row_bits(wire: WireFormat, support: int) -> int:
    """A target row, downwards."""
    return dssd.expected_row_bits(wire, None if support >= wire.vocab_size else support)


@lru_cache(maxsize=256)
def candidates_bits(count: int, wire: WireFormat, support: int) -> int:
    """Draws from the target in its place. Of m, 2 sqrt(m) are taken to differ: likely tokens repeat."""
    distinct = max(1, min(count, support, round(2.0 * sqrt(count))))
    return dssd_candidates.expected_candidate_bits(wire, count, distinct)
