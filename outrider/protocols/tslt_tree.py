"""tslt_tree: a token tree, and the truncated distributions its nodes were drawn from (TSLT section 4).

One distribution per node that has children. A greedy request's tree has none, and sends ids only.
"""

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
from outrider.wire.shapes import children_of, read_shape, shape_bits, write_shape


def encode(writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
    """See ``BlockCodec.encode``."""
    writer.flag(value=draft.distribution is not None)
    write_shape(writer, draft, plan)
    if draft.distribution is None:
        writer.ids(draft.token_ids, wire.vocab_size)
        return
    groups = children_of(draft.parents, len(draft.token_ids))
    tokens = [[draft.token_ids[node] for node in group] for group in groups]
    write_drawn(writer, told(draft, SparseDraft), tokens, wire)


def decode(reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
    """See ``BlockCodec.decode``."""
    has_rows = reader.flag()
    nodes, parents = read_shape(reader, request.plan)
    if not has_rows:
        return block(request, tuple(reader.ids(nodes, wire.vocab_size).tolist()), parents)
    token_ids, drawn = read_drawn(reader, [len(group) for group in children_of(parents, nodes)], wire)
    return block(request, token_ids, parents, drawn)


def lossless(wire: WireFormat) -> bool:  # noqa: ARG001 (one signature for all protocols)
    """Always: the drafter truncates and rounds before it samples."""
    return True


def expected_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """TSLT eq. 3 for each of the ``|Q| = 1 + sum_{l=1}^{L-1} prod_{i<=l} k_i`` distributions of eq. 27."""
    return _rows(plan) * expected_row_bits(wire)


def overhead_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """Whether there are rows, the shape, row sizes, int8 scales, and the drawn tokens."""
    drawn = plan.nodes * rank_bits(kept_tokens(wire))
    return 1 + shape_bits(plan) + _rows(plan) * row_overhead_bits(wire) + drawn


def _rows(plan: DraftPlan) -> int:
    if not plan.expansion:
        return plan.window
    return DraftPlan(plan.protocol, plan.window - 1, plan.expansion[:-1]).nodes + 1
