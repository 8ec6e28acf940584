"""tslt: truncated draft distributions go up, each with the token drawn from it (TSLT section 3)."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.exchanged import DraftDistribution, FloatRow, SparseDraft, WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.protocols.drawing import siblings
from outrider.protocols.protocol import DraftProtocol, DraftRow, DrawnRow, Layer, block, distribution_as
from outrider.protocols.rows import (
    expected_row_bits,
    kept_tokens,
    rank_bits,
    read_drawn,
    row_overhead_bits,
    unlikely_token,
    write_drawn,
)
from outrider.sampling.rounding import truncated
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.shapes import read_shape, shape_bits, write_shape


class Tslt(DraftProtocol):
    """Sends truncated rows of chains."""

    name = "tslt"
    code = 2

    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        """Write the length, then each row with its drawn token."""
        write_shape(writer, draft, plan)
        write_drawn(writer, distribution_as(SparseDraft, draft), [[token_id] for token_id in draft.token_ids], wire)

    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        nodes, parents = read_shape(reader, request.plan)
        token_ids, drawn = read_drawn(reader, [1] * nodes, wire)
        return block(request, token_ids, parents, drawn)

    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return TSLT eq. 3 at each of K positions with full rows; ``top_rho`` below 1 sends less."""
        return plan.window * expected_row_bits(wire)

    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return the bits of length, row sizes, int8 scales and drawn tokens, which eq. 3 omits."""
        return shape_bits(plan) + plan.window * (row_overhead_bits(wire) + rank_bits(kept_tokens(wire)))

    def draw_greedy(self, row: FloatRow, layer: Layer) -> DrawnRow:  # noqa: ARG002 (one signature for all)
        """Take the most probable token; the row sent has no other."""
        token_id = int(row.argmax())
        return DrawnRow((token_id,), np.array([token_id], dtype=np.int64), np.zeros(1, dtype=np.float32))

    def rounded(self, row: FloatRow, wire: WireFormat, params: SamplingParams) -> DraftRow:  # noqa: ARG002 (one signature for all)
        """Truncate a row and round what is kept to the message's field."""
        support, logits = truncated(row, wire)
        return DraftRow(logits, support)

    def draw_sampled(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        numbers, drawn = layer.numbers(), []
        for row in rows:
            assert row.support is not None
            ranks = siblings(row.probs, numbers, distinct=layer.wire.distinct_siblings)
            drawn.append(DrawnRow(tuple(row.support[list(ranks)].tolist()), row.support, row.logits))
        return drawn

    def distribution(self, rows: Sequence[DrawnRow], wire: WireFormat, params: SamplingParams) -> DraftDistribution:  # noqa: ARG002 (one signature for all)
        return SparseDraft(
            tuple(row.support for row in rows if row.support is not None),
            tuple(row.logits for row in rows if row.logits is not None),
        )

    def fault(self, draft: Draft, params: SamplingParams) -> str | None:  # noqa: ARG002 (one signature for all)
        """Name a token whose logit is so far below its row's largest that its probability is 0."""
        return unlikely_token(draft)
