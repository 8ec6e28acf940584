"""No honest message is larger than its bound, and no bound much larger than the message asked for."""

from random import Random

import pytest

from outrider.contracts.drafting import DraftPlan, NeedsPrefix, NeedsRow
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.protocols.registry import PROTOCOLS
from outrider.session.sizes import most_block_bytes, most_details_bytes
from outrider.wire.envelope import MAX_MESSAGE_BYTES
from tests.unit.session.conversation import Conversation
from tests.unit.session.random_rounds import random_wire


@pytest.mark.parametrize("vocab_size", [3, 257, 50_000])
def test_answers_of_every_protocol_are_within_their_bound(vocab_size: int) -> None:
    rng, seen = Random(vocab_size), set[str]()
    for _ in range(2 * len(PROTOCOLS) if vocab_size > 1000 else 60):
        conversation = Conversation(rng, random_wire(rng, vocab_size))
        for _ in range(12):
            conversation.verdict()
            request = conversation.request()
            _, heard = conversation.order(request)
            answer, told = conversation.answer(request, heard)
            assert len(answer) <= most_block_bytes(conversation.wire, request.plan)
            seen.add(request.plan.protocol)
            if isinstance(told, NeedsPrefix | NeedsRow):
                conversation.reopen()
    assert seen == set(PROTOCOLS)


def test_what_ids_need_is_a_few_kib_and_nothing_is_more_than_a_message_may_have() -> None:
    wire = WireFormat(262_144)
    assert most_block_bytes(wire, DraftPlan("token_ids", 8)) < 8192
    rows = most_block_bytes(WireFormat(262_144, logit_field=FloatField.FP32), DraftPlan("dsd", 127))
    assert rows == MAX_MESSAGE_BYTES
    assert most_details_bytes(WireFormat(100, hidden_width=0), 8) < 8192
    states = most_details_bytes(WireFormat(100, hidden_width=4096, hidden_field=FloatField.FP16), 8)
    assert 8 * 4096 * 2 < states < 2**18
