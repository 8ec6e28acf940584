"""dsd: whole draft distributions go up with the ids drawn from them (TSLT section 2, baseline of both papers)."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import DenseDraft, DraftDistribution, FloatRow, WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.protocols.drawing import siblings
from outrider.protocols.protocol import DraftProtocol, DraftRow, DrawnRow, Layer, block, distribution_as
from outrider.protocols.rows import impossible_token
from outrider.sampling.floats import CODE_BITS, header_bits, vector_bits
from outrider.sampling.rounding import rounded_logits
from outrider.wire.bits import BitReader, BitWriter, id_bits
from outrider.wire.shapes import read_shape, shape_bits, write_shape


class Dsd(DraftProtocol):
    """Sends whole rows of logits."""

    name = "dsd"
    code = 1

    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        """Write length and ids, then the rows."""
        logits = distribution_as(DenseDraft, draft).logits
        if logits.shape != (len(draft.token_ids), wire.vocab_size):
            raise MessageError(f"needs logits {(len(draft.token_ids), wire.vocab_size)}, found {logits.shape}")
        write_shape(writer, draft, plan)
        writer.ids(draft.token_ids, wire.vocab_size)
        _check_drawn(logits, draft.token_ids)
        for row in logits:
            writer.floats(row, wire.logit_field)

    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        """Read a block; the rows are allocated only once the message is known to hold their bits."""
        nodes, parents = read_shape(reader, request.plan)
        token_ids = reader.ids(nodes, wire.vocab_size)
        reader.need(nodes * vector_bits(wire.vocab_size, wire.logit_field))
        logits = np.empty((nodes, wire.vocab_size), dtype=np.float32)
        for row in logits:
            row[:] = reader.floats(wire.vocab_size, wire.logit_field)
        drawn = tuple(token_ids.tolist())
        _check_drawn(logits, drawn)
        return block(request, drawn, parents, DenseDraft(logits))

    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return ``K * (|V| * b_prob + ceil(log2 |V|))``: TSLT eq. 3 untruncated, and the ids."""
        return plan.nodes * (wire.vocab_size * CODE_BITS[wire.logit_field] + id_bits(wire.vocab_size))

    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return the bits of the length and of the scales of int8 rows."""
        return shape_bits(plan) + plan.nodes * header_bits(wire.logit_field)

    def draw_greedy(self, row: FloatRow, layer: Layer) -> DrawnRow:  # noqa: ARG002 (one signature for all)
        """Take the most probable token; the row sent has no other."""
        token_id = int(row.argmax())
        logits = np.full(row.size, -np.inf, dtype=np.float32)
        logits[token_id] = 0.0
        return DrawnRow((token_id,), logits=logits)

    def rounded(self, row: FloatRow, wire: WireFormat, params: SamplingParams) -> DraftRow:  # noqa: ARG002 (one signature for all)
        return DraftRow(rounded_logits(row, wire.logit_field))

    def draw_sampled(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        """Draw from the rows as rounded to the message's field."""
        numbers = layer.numbers()
        return [DrawnRow(siblings(row.probs, numbers, distinct=False), logits=row.logits) for row in rows]

    def distribution(self, rows: Sequence[DrawnRow], wire: WireFormat, params: SamplingParams) -> DraftDistribution:  # noqa: ARG002 (one signature for all)
        whole = [row.logits for row in rows if row.logits is not None]
        return DenseDraft(np.stack(whole) if whole else np.zeros((0, wire.vocab_size), dtype=np.float32))

    def fault(self, draft: Draft, params: SamplingParams) -> str | None:  # noqa: ARG002 (one signature for all)
        """Name a token whose logit is finite but so far below the largest that its probability is 0."""
        rows = distribution_as(DenseDraft, draft).logits
        faults = (
            impossible_token([token_id], row, np.array([token_id]))
            for token_id, row in zip(draft.token_ids, rows, strict=True)
        )
        return next((fault for fault in faults if fault is not None), None)


def _check_drawn(logits: FloatRow, token_ids: tuple[int, ...]) -> None:
    if not np.isfinite(logits[np.arange(len(token_ids)), np.array(token_ids, dtype=np.int64)]).all():
        raise MessageError("needs tokens drawn from their rows, found one that was removed")
