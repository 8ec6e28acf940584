"""dssd: ids and their probabilities go up; after a rejection the target's row comes down (DSSD section 3).

The probabilities are exact in fixed point: the drafter samples from multiples of ``2**-scalar_bits``. It keeps the rows
that it drew from and draws the correction itself, as the verifier does not have the draft distribution.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import Deferral, DraftDistribution, FloatField, FloatRow, ScalarDraft, WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.link.latency import down_s, up_s
from outrider.protocols.corrections import expected_row_bits
from outrider.protocols.drawing import siblings
from outrider.protocols.fixed_point import fixed_point_row
from outrider.protocols.payload import expected_support
from outrider.protocols.protocol import DraftProtocol, DraftRow, DrawnRow, Layer, RoundTerms, block, distribution_as
from outrider.wire.bits import BitReader, BitWriter, id_bits
from outrider.wire.shapes import read_shape, shape_bits, write_shape


class Dssd(DraftProtocol):
    """Sends scalars up and a row down."""

    name = "dssd"
    code = 4

    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        """Write length and ids, then a numerator each, 1 .. 2**bits."""
        sent = distribution_as(ScalarDraft, draft)
        if sent.bits != wire.scalar_bits or len(sent.numerators) != len(draft.token_ids):
            raise MessageError(
                f"needs {len(draft.token_ids)} numerators of {wire.scalar_bits} bits, found {len(sent.numerators)} of "
                f"{sent.bits}"
            )
        write_shape(writer, draft, plan)
        writer.ids(draft.token_ids, wire.vocab_size)
        writer.uints(sent.numerators - 1, wire.scalar_bits)

    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        nodes, parents = read_shape(reader, request.plan)
        token_ids = tuple(reader.ids(nodes, wire.vocab_size).tolist())
        numerators = reader.uints(nodes, wire.scalar_bits).astype(np.int64) + 1
        return block(request, token_ids, parents, ScalarDraft(numerators, wire.scalar_bits))

    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return ``K * (ceil(log2 |V|) + b_prob)``: ids and one scalar each."""
        return plan.nodes * (id_bits(wire.vocab_size) + wire.scalar_bits)

    def overhead_bits(self, wire: WireFormat, plan: DraftPlan) -> int:  # noqa: ARG002 (one signature for all)
        return shape_bits(plan)

    def draw_greedy(self, row: FloatRow, layer: Layer) -> DrawnRow:
        """Take the most probable token; it has all the mass."""
        return DrawnRow((int(row.argmax()),), numerators=fixed_point_row(row, layer.wire, layer.params))

    def rounded(self, row: FloatRow, wire: WireFormat, params: SamplingParams) -> DraftRow:
        return DraftRow(row, numerators=fixed_point_row(row, wire, params))

    def draw_sampled(self, rows: Sequence[DraftRow], layer: Layer) -> list[DrawnRow]:
        numbers = layer.numbers()
        return [DrawnRow(siblings(row.probs, numbers, distinct=False), numerators=row.numerators) for row in rows]

    def distribution(self, rows: Sequence[DrawnRow], wire: WireFormat, params: SamplingParams) -> DraftDistribution:  # noqa: ARG002 (one signature for all)
        drawn = [row.numerators[row.token_ids[0]] for row in rows if row.numerators is not None]
        return ScalarDraft(np.array(drawn, dtype=np.int64), wire.scalar_bits)

    def lossless(self, wire: WireFormat) -> bool:
        """Return whether the target's probabilities come down unrounded, as the device draws the output from them."""
        return wire.row_field is FloatField.FP32

    def deferral(self, terms: RoundTerms) -> Deferral | None:
        """Return a deferral with the whole row; None for a greedy request, which has nothing to draw."""
        return None if terms.params.greedy else Deferral(terms.wire.row_field)

    def rejection_s(self, terms: RoundTerms) -> float:
        """Return the seconds of the row down and an id up."""
        support = expected_support(terms.params, terms.wire.vocab_size)
        if terms.csi is None or support <= 1:
            return 0.0
        correction_up_s = id_bits(terms.wire.vocab_size) * up_s(terms.csi, 1.0)
        return self.source_s(terms, row_bits(terms.wire, support) * down_s(terms.csi, 1.0)) + correction_up_s

    def source_s(self, terms: RoundTerms, row_s: float) -> float:  # noqa: ARG002 (dssd_candidates has another)
        """Return the expected seconds until the device can draw; ``row_s`` is the time of a row on the downlink."""
        return row_s


@lru_cache(maxsize=256)
def row_bits(wire: WireFormat, support: int) -> int:
    return expected_row_bits(wire, None if support >= wire.vocab_size else support)
