"""tslt: truncated draft distributions go up, each with the token drawn from it (TSLT section 3)."""

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.exchanged import SparseDraft, WireFormat
from outrider.protocols.codec import block, told
from outrider.protocols.rows import (
    expected_row_bits,
    kept_tokens,
    rank_bits,
    read_drawn,
    row_overhead_bits,
    write_drawn,
)
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.shapes import read_shape, shape_bits, write_shape


def encode(writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
    """See ``BlockCodec.encode``."""
    write_shape(writer, draft, plan)
    write_drawn(writer, told(draft, SparseDraft), [[token_id] for token_id in draft.token_ids], wire)


def decode(reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
    """See ``BlockCodec.decode``."""
    nodes, parents = read_shape(reader, request.plan)
    token_ids, drawn = read_drawn(reader, [1] * nodes, wire)
    return block(request, token_ids, parents, drawn)


def lossless(wire: WireFormat) -> bool:  # noqa: ARG001 (one signature for all protocols)
    """Always: the drafter truncates and rounds before it samples."""
    return True


def expected_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """TSLT eq. 3 at each of K positions, every row full: ``top_rho`` below 1 sends less."""
    return plan.window * expected_row_bits(wire)


def overhead_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """Length, row sizes, int8 scales, and the drawn tokens (eq. 3 forgets them)."""
    return shape_bits(plan) + plan.window * (row_overhead_bits(wire) + rank_bits(kept_tokens(wire)))
