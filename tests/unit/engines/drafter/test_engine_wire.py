"""What a drafter answers is what its message says: through real bytes, and past the coordinator's checks."""

from dataclasses import replace

import pytest

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.exchanged import TargetRow
from outrider.contracts.requests import SamplingParams
from outrider.protocols.hidden_states import rounded_states
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.rounding import round_floats
from outrider.session.answers import draft_fault
from outrider.session.session import CoordinatorSession, DrafterSession
from tests.unit.engines.conftest import VOCAB, WHOLE_DRAFTERS, MakeDrafter
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device, draft_of

pytestmark = WHOLE_DRAFTERS

SCALARS = ("dssd", "dssd_candidates")
WIDTH = 48  # of the draft model's hidden states
PLANS = [
    *(DraftPlan(protocol, 3) for protocol in PROTOCOLS),
    DraftPlan("tslt_tree", 2, (2, 3)),
    DraftPlan("token_ids", 2, (3, 1)),
    DraftPlan("token_ids", 3, rows=6),
]


@pytest.mark.parametrize("params", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_answers_survive_their_messages(make_drafter: MakeDrafter, plan: DraftPlan, params: SamplingParams) -> None:
    protocol = plan.protocol
    engine, device = make_drafter(), Device("a", params, protocol=protocol)
    wire = replace(TERMS.wire, hidden_width=WIDTH)
    engine.open(device.opening(), replace(TERMS, wire=wire))
    coordinator = CoordinatorSession(wire, "a")
    drafter = DrafterSession(wire, "a", device.tokens)
    deferred = None
    for _ in range(4):
        request = device.request(plan.window, plan.expansion, rows=plan.rows, correction=deferred)
        draft = draft_of(engine, drafter.decode_order(coordinator.encode_order(request)))
        decoded = coordinator.decode_answer(drafter.encode_answer(draft), request)
        sent = draft.hidden if protocol == "wisv_full" else None  # others' stay behind, if there are any
        assert decoded == replace(draft, hidden=None if sent is None else rounded_states(sent, wire))
        assert (draft.hidden is None) != PROTOCOLS[protocol].judged
        assert isinstance(decoded, Draft)
        assert draft_fault(decoded, request, params) is None
        if decoded.correction is not None:
            device.tokens.append(decoded.correction)
        device.tokens += decoded.token_ids[:1]
        if protocol in SCALARS:
            probs = round_floats([1.0 / VOCAB] * VOCAB, TERMS.wire.row_field)
            deferred = TargetRow(None, probs)
        else:
            device.tokens.append(7)
