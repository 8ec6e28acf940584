"""tslt_tree: a token tree goes up with the truncated distributions of its nodes (TSLT section 4).

There is one distribution for each node with children. A greedy request's tree has none and sends ids only.
"""

from collections.abc import Sequence

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.exchanged import DraftDistribution, FloatRow, SparseDraft, WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.protocols.drawing import best
from outrider.protocols.protocol import DrawnRow, Layer, block, distribution_as
from outrider.protocols.rows import (
    expected_row_bits,
    kept_tokens,
    rank_bits,
    read_drawn,
    row_overhead_bits,
    write_drawn,
)
from outrider.protocols.tslt import Tslt
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.shapes import children_of, read_shape, shape_bits, write_shape


class TsltTree(Tslt):
    """Sends truncated rows of trees."""

    name = "tslt_tree"
    code = 3
    chains, trees = False, True

    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        """Write whether there are rows, the shape, then ids alone or each row with its drawn tokens."""
        writer.flag(value=draft.distribution is not None)
        write_shape(writer, draft, plan)
        if draft.distribution is None:
            writer.ids(draft.token_ids, wire.vocab_size)
            return
        groups = children_of(draft.parents, len(draft.token_ids))
        tokens = [[draft.token_ids[node] for node in group] for group in groups]
        write_drawn(writer, distribution_as(SparseDraft, draft), tokens, wire)

    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        has_rows = reader.flag()
        nodes, parents = read_shape(reader, request.plan)
        if not has_rows:
            return block(request, tuple(reader.ids(nodes, wire.vocab_size).tolist()), parents)
        token_ids, drawn = read_drawn(reader, [len(group) for group in children_of(parents, nodes)], wire)
        return block(request, token_ids, parents, drawn)

    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return TSLT eq. 3 for each of the ``|Q| = 1 + sum_{l=1}^{L-1} prod_{i<=l} k_i`` distributions of eq. 27."""
        return _rows(plan) * expected_row_bits(wire)

    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return the bits of the flag for rows, shape, row sizes, int8 scales and drawn tokens."""
        drawn = plan.nodes * rank_bits(kept_tokens(wire))
        return 1 + shape_bits(plan) + _rows(plan) * row_overhead_bits(wire) + drawn

    def draw_greedy(self, row: FloatRow, layer: Layer) -> DrawnRow:
        """Take the most probable tokens; nothing of the row is sent."""
        return DrawnRow(best(row, layer.children))

    def distribution(self, rows: Sequence[DrawnRow], wire: WireFormat, params: SamplingParams) -> DraftDistribution:
        """Return the truncated rows; None for a greedy request's tree."""
        return None if params.greedy else super().distribution(rows, wire, params)

    def rule(self, params: SamplingParams, wire: WireFormat) -> AcceptanceRule:
        """Return the ratio rule that matches how siblings are drawn, with or without replacement."""
        rule = super().rule(params, wire)
        return AcceptanceRule.RATIO_DISTINCT if rule is AcceptanceRule.RATIO and wire.distinct_siblings else rule

    def fault(self, draft: Draft, params: SamplingParams) -> str | None:
        if draft.distribution is None:
            return None if params.greedy else "needs a SparseDraft, found none"
        return super().fault(draft, params)


def _rows(plan: DraftPlan) -> int:
    if not plan.expansion:
        return plan.window
    return DraftPlan(plan.protocol, plan.window - 1, plan.expansion[:-1]).nodes + 1
