"""dsd: whole draft distributions go up, with the ids drawn from them (TSLT section 2, the baseline of both papers)."""

import numpy as np

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import DenseDraft, FloatRow, WireFormat
from outrider.protocols.codec import block, told
from outrider.sampling.floats import CODE_BITS, header_bits, vector_bits
from outrider.wire.bits import BitReader, BitWriter, id_bits
from outrider.wire.shapes import read_shape, shape_bits, write_shape


def encode(writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
    """See ``BlockCodec.encode``."""
    logits = told(draft, DenseDraft).logits
    if logits.shape != (len(draft.token_ids), wire.vocab_size):
        raise MessageError(f"needs logits {(len(draft.token_ids), wire.vocab_size)}, found {logits.shape}")
    write_shape(writer, draft, plan)
    writer.ids(draft.token_ids, wire.vocab_size)
    _check_drawn(logits, draft.token_ids)
    for row in logits:
        writer.floats(row, wire.logit_field)


def decode(reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
    """See ``BlockCodec.decode``."""
    nodes, parents = read_shape(reader, request.plan)
    token_ids = reader.ids(nodes, wire.vocab_size)
    reader.need(nodes * vector_bits(wire.vocab_size, wire.logit_field))
    logits = np.empty((nodes, wire.vocab_size), dtype=np.float32)
    for row in logits:
        row[:] = reader.floats(wire.vocab_size, wire.logit_field)
    drawn = tuple(token_ids.tolist())
    _check_drawn(logits, drawn)
    return block(request, drawn, parents, DenseDraft(logits))


def lossless(wire: WireFormat) -> bool:  # noqa: ARG001 (one signature for all protocols)
    """Always: the drafter rounds before it samples."""
    return True


def expected_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """``K * (|V| * b_prob + ceil(log2 |V|))``: TSLT eq. 3 untruncated, and the ids."""
    return plan.nodes * (wire.vocab_size * CODE_BITS[wire.logit_field] + id_bits(wire.vocab_size))


def overhead_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """The length, and the scales of int8 rows."""
    return shape_bits(plan) + plan.nodes * header_bits(wire.logit_field)


def _check_drawn(logits: FloatRow, token_ids: tuple[int, ...]) -> None:
    if not np.isfinite(logits[np.arange(len(token_ids)), np.array(token_ids, dtype=np.int64)]).all():
        raise MessageError("needs tokens drawn from their rows, found one that was removed")
