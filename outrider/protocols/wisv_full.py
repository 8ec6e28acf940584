"""wisv_full: ids go up, each with the hidden state it was chosen from (WISV's full-hidden upload, eq. 5, 6).

Used for greedy requests that allow it. At a mismatch with the target's choice a judge decides, from both models' hidden
states and the link's state, whether the drafter's token is kept (``outrider.verification.semantic``). Lossy.
"""

from dataclasses import replace

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.protocols.hidden_states import read_states, state_bits, write_states
from outrider.protocols.token_ids import TokenIds
from outrider.wire.bits import BitReader, BitWriter


class Judged(TokenIds):
    """Base of both uploads: a chain of the drafter's own choices, whose mismatches are judged."""

    trees = grows = reproducible = draws_as_target = False
    judged = True

    def rule(self, params: SamplingParams, wire: WireFormat) -> AcceptanceRule:
        """Return the semantic rule; a sampled request is verified as one of ``TokenIds``."""
        return AcceptanceRule.SEMANTIC if params.greedy else super().rule(params, wire)

    def lossless(self, wire: WireFormat) -> bool:  # noqa: ARG002 (one signature for all)
        """Return False, as mismatches may be committed."""
        return False


class WisvFull(Judged):
    """Sends all hidden states at once."""

    name = "wisv_full"
    code = 6

    def encode(self, writer: BitWriter, draft: Draft, plan: DraftPlan, wire: WireFormat) -> None:
        """Write ids, then a hidden state for each."""
        super().encode(writer, draft, plan, wire)
        found = 0 if draft.hidden is None else len(draft.hidden)
        if found != len(draft.token_ids):
            raise MessageError(
                f"wisv_full needs a hidden state for each of {len(draft.token_ids)} tokens, found {found}"
            )
        if draft.hidden is not None:
            write_states(writer, draft.hidden, wire)

    def decode(self, reader: BitReader, request: DraftRequest, wire: WireFormat) -> Draft:
        draft = super().decode(reader, request, wire)
        return replace(draft, hidden=read_states(reader, len(draft.token_ids), wire))

    def expected_bits(self, wire: WireFormat, plan: DraftPlan) -> int:
        """Return ``K * b_tok + K * d * b_h`` (WISV eq. 5)."""
        return super().expected_bits(wire, plan) + plan.nodes * state_bits(wire)
