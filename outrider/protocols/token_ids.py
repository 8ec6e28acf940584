"""token_ids: nothing but ids crosses the link, as a chain or a tree.

Exact for greedy requests, and by shared noise for sampled ones (Daliri, Musco, Suresh 2024, arXiv 2408.07978).
"""

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import WireFormat
from outrider.protocols.codec import block
from outrider.wire.bits import BitReader, BitWriter, id_bits
from outrider.wire.shapes import read_shape, shape_bits, write_shape


def encode(writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
    """See ``BlockCodec.encode``."""
    if draft.distribution is not None:
        raise MessageError(
            f"token_ids needs a block without distributions, found a {type(draft.distribution).__name__}"
        )
    write_shape(writer, draft, plan)
    writer.ids(draft.token_ids, wire.vocab_size)


def decode(reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
    """See ``BlockCodec.decode``."""
    nodes, parents = read_shape(reader, request.plan)
    return block(request, tuple(reader.ids(nodes, wire.vocab_size).tolist()), parents)


def lossless(wire: WireFormat) -> bool:  # noqa: ARG001 (one signature for all protocols)
    """Always: acceptance needs no number that could be rounded."""
    return True


def expected_bits(wire: WireFormat, plan: DraftPlan) -> int:
    """``K * ceil(log2 |V|)``."""
    return plan.nodes * id_bits(wire.vocab_size)


def overhead_bits(wire: WireFormat, plan: DraftPlan) -> int:  # noqa: ARG001 (one signature for all protocols)
    """The shape."""
    return shape_bits(plan)
