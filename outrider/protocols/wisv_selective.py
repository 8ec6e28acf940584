"""wisv_selective: ids go up, and hidden states only at mismatches with the target's choice (WISV eq. 7-10).

It decides as ``wisv_full`` does. A round without a mismatch costs what ids cost; any other costs one more exchange.
"""

from collections.abc import Sequence
from itertools import pairwise

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import FloatRow, WireFormat
from outrider.link.latency import exchange_s
from outrider.protocols.hidden_states import read_states, state_bits, write_states
from outrider.protocols.protocol import RoundTerms, SecondStep
from outrider.protocols.wisv_full import Judged
from outrider.wire.bits import BitReader, BitWriter
from outrider.wire.envelope import envelope_bits


class Selective(SecondStep):
    """Exchanges the states of some tokens on request: ``M * b_idx`` down (eq. 8), ``M * d * b_h`` up (eq. 9)."""

    def encode_question(self, writer: BitWriter, mismatches: Sequence[int], plan: DraftPlan) -> None:
        """Write the number of indices, then the indices."""
        writer.uint(len(mismatches), plan.window.bit_length())
        writer.uints(list(mismatches), index_bits(plan))

    def decode_question(self, reader: BitReader, plan: DraftPlan) -> tuple[int, ...]:
        asked = tuple(int(index) for index in reader.uints(reader.uint(plan.window.bit_length()), index_bits(plan)))
        if any(later <= earlier for earlier, later in pairwise(asked)):
            raise MessageError(f"needs indices that ascend, found {asked}; the message is damaged")
        return asked

    def encode_states(self, writer: BitWriter, hidden: FloatRow, wire: WireFormat) -> None:
        write_states(writer, hidden, wire)

    def decode_states(self, reader: BitReader, count: int, wire: WireFormat) -> FloatRow:
        return read_states(reader, count, wire)


def index_bits(plan: DraftPlan) -> int:
    return max(1, (plan.window - 1).bit_length())


class WisvSelective(Judged):
    """Sends hidden states once mismatches are known."""

    name = "wisv_selective"
    code = 7
    second_step = Selective()

    def again_s(self, terms: RoundTerms, plan: DraftPlan, mismatches: float) -> float:
        """Return the seconds of the question down, the states up and another round trip (eq. 10)."""
        if terms.csi is None:
            return 0.0
        asked_bits = plan.window.bit_length() + mismatches * index_bits(plan)
        return exchange_s(
            terms.csi, envelope_bits(0) + asked_bits, envelope_bits(0) + mismatches * state_bits(terms.wire)
        )
