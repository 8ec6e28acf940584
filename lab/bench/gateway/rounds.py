"""A round's call and reply, by the real sessions and codecs: a greedy chain of four behind another."""

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.protocols.registry import PLAINEST
from outrider.session.session import CoordinatorSession, DrafterSession
from outrider.versions import VERSIONS
from outrider.wire.calls import write_call
from outrider.wire.replies import Answer, DrafterCard, plain

WINDOW, VOCAB = 4, 49_152
_PROMPT = tuple(range(500, 564))


def greedy_round(generation: str) -> tuple[bytes, bytes]:
    """Return the call and the reply of a generation's second round, as they are between gateway and device."""
    wire, tokens, known = WireFormat(VOCAB), [*_PROMPT], len(_PROMPT)
    ours, theirs = CoordinatorSession(wire, generation), DrafterSession(wire, generation, _PROMPT)
    order = answer = b""
    for number in range(2):
        prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, tokens)
        plan = DraftPlan(PLAINEST, WINDOW)
        request = DraftRequest(generation, number, known, tuple(tokens[known:]), prefix_hash, plan)
        order = ours.encode_order(request)
        asked = theirs.decode_order(order)
        drafted = tuple(range(7 * number, 7 * number + WINDOW))
        answer = theirs.encode_answer(Draft(generation, number, asked.feedback_position + len(asked.feedback), drafted))
        ours.decode_answer(answer, request)
        known, tokens = len(tokens), [*tokens, *drafted, 999]
    call = write_call("exchange", generation, order, version=VERSIONS.protocol.newest)
    return call, plain(Answer(answer, 0.02))


CARD = plain(DrafterCard("onnx", "model", "tokens", VOCAB, (0,), 2048))
