"""Blocks and corrections as they come out at the other end of the link, through whole messages."""

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.exchanged import CorrectionSource, WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.session.session import CoordinatorSession, DrafterSession

PROMPT = (1, 0, 2, 1)
GENERATION = "g"
ROUND = 1


def _request(plan: DraftPlan, correction: CorrectionSource | None = None) -> DraftRequest:
    prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, PROMPT)
    return DraftRequest(GENERATION, ROUND, len(PROMPT), (), prefix_hash, plan, correction)


def sent_draft(draft: Draft, plan: DraftPlan, wire: WireFormat) -> Draft:
    """A block of ``GENERATION``, ``ROUND`` behind ``PROMPT``, as the coordinator decodes it."""
    coordinator = CoordinatorSession(wire, GENERATION)
    drafter = DrafterSession(wire, GENERATION, PROMPT)
    request = _request(plan)
    assert drafter.decode_order(coordinator.encode_order(request)) == request
    answer = coordinator.decode_answer(drafter.encode_answer(draft), request)
    assert isinstance(answer, Draft)
    return answer


def sent_correction(source: CorrectionSource, wire: WireFormat) -> CorrectionSource:
    """A correction's source as the device decodes it."""
    order = CoordinatorSession(wire, GENERATION).encode_order(_request(DraftPlan("dssd", 0), source))
    received = DrafterSession(wire, GENERATION, PROMPT).decode_order(order).correction
    assert received is not None
    return received
