"""Random and damaged messages: only ``MessageError`` comes out, and the next good message is understood.

A CRC-16 lets one random damage in 65,536 through. Such a message has to be sound in itself, and is counted.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from outrider.contracts.drafting import DraftRequest, NeedsPrefix, NeedsRow
from outrider.contracts.errors import MessageError
from outrider.session.session import CoordinatorSession
from outrider.wire.envelope import HEADER_BYTES, seal, unseal
from tests.unit.session.conversation import GENERATION, Conversation
from tests.unit.session.random_rounds import random_wire

ROUNDS, CONVERSATIONS = 12, 20
DAMAGED_PER_MESSAGE, RESEALED_PER_MESSAGE = 90, 30
LEAST_INPUTS = 25_000  # of each of four tests


def damaged(rng: Random, data: bytes, other: bytes) -> bytes:
    """Bits flipped, bytes cut off, added or taken from another message, or nothing of it left."""
    kind = rng.randrange(5)
    if kind == 0:
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 3, 8])):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == 1:
        return data[: rng.randrange(len(data))]
    if kind == 2:
        return data + rng.randbytes(rng.randint(1, 5))
    cut = rng.randint(0, min(len(data), 10))
    if kind == 3:
        return data[:cut] + other[cut:]
    return data[:cut] + rng.randbytes(rng.randint(0, 40))


def resealed(rng: Random, data: bytes, other: bytes, prefix_hash: int) -> bytes:
    """Damage that a sender wraps in a good envelope."""
    message = unseal(data)
    body = damaged(rng, b"\0" * HEADER_BYTES + message.body, other)[HEADER_BYTES:]
    return seal(message.kind, message.round_low, body, prefix_hash)


class Tally:
    """Inputs tried, and those that were understood although damaged."""

    def __init__(self) -> None:
        self.inputs = self.understood = 0

    def refused(self, read: Callable[[], object]) -> bool:
        """Whether an input is refused, as it has to be: by ``MessageError``."""
        self.inputs += 1
        try:
            read()
        except MessageError:
            return True
        self.understood += 1
        return False


def messages(rng: Random, vocab_size: int) -> Iterator[tuple[Conversation, DraftRequest]]:
    """Conversations about to send a good order."""
    for _ in range(CONVERSATIONS):
        conversation = Conversation(rng, random_wire(rng, vocab_size))
        for _ in range(ROUNDS):
            conversation.verdict()
            yield conversation, conversation.request()


@pytest.mark.parametrize("vocab_size", [3, 257])
def test_damaged_orders(vocab_size: int) -> None:
    rng = Random(vocab_size)
    by_chance, by_intent = Tally(), Tally()
    other = b"\x21" * 20
    for conversation, request in messages(rng, vocab_size):
        order = conversation.coordinator.encode_order(request)
        before = deepcopy(conversation.drafter)
        for _ in range(DAMAGED_PER_MESSAGE):
            bad = damaged(rng, order, other)
            if bad not in (order, other) and not by_chance.refused(partial(conversation.drafter.decode_order, bad)):
                conversation.drafter = deepcopy(before)
        for _ in range(RESEALED_PER_MESSAGE):
            bad = resealed(rng, order, other, request.prefix_hash)
            if not by_intent.refused(partial(conversation.drafter.decode_order, bad)):
                # What is understood is something a coordinator can say.
                heard = conversation.drafter.decode_order(bad)
                asked = replace(heard, want_hidden=False)  # the protocol says so
                said = CoordinatorSession(conversation.wire, GENERATION).encode_order(asked)
                assert deepcopy(before).decode_order(said) == heard
                conversation.drafter = deepcopy(before)
        _, heard = conversation.order(request)
        _, told = conversation.answer(request, heard)
        if isinstance(told, NeedsPrefix | NeedsRow):
            conversation.reopen()
        other = order
    assert by_chance.inputs + by_intent.inputs > LEAST_INPUTS
    assert by_chance.understood <= 5
    assert 0 < by_intent.understood < by_intent.inputs


@pytest.mark.parametrize("vocab_size", [3, 257])
def test_damaged_answers(vocab_size: int) -> None:
    rng = Random(vocab_size)
    by_chance, by_intent = Tally(), Tally()
    other = b"\x22" * 20
    for conversation, request in messages(rng, vocab_size):
        _, heard = conversation.order(request)
        before = deepcopy(conversation.coordinator)
        answer, told = conversation.answer(request, heard)
        coordinator = deepcopy(before)
        for _ in range(DAMAGED_PER_MESSAGE):
            bad = damaged(rng, answer, other)
            if bad != answer and not by_chance.refused(partial(coordinator.decode_answer, bad, request)):
                coordinator = deepcopy(before)
        for _ in range(RESEALED_PER_MESSAGE):
            bad = resealed(rng, answer, other, request.prefix_hash)
            if not by_intent.refused(partial(coordinator.decode_answer, bad, request)):
                # What is understood is something a drafter can say.
                understood = deepcopy(before).decode_answer(bad, request)
                said = deepcopy(conversation.drafter).encode_answer(replace(understood, round=heard.round))
                assert deepcopy(before).decode_answer(said, request) == understood
                coordinator = deepcopy(before)
        assert coordinator.decode_answer(answer, request) == told
        if isinstance(told, NeedsPrefix | NeedsRow):
            conversation.reopen()
        other = answer
    assert by_chance.inputs + by_intent.inputs > LEAST_INPUTS
    assert by_chance.understood <= 5
    assert 0 < by_intent.understood < by_intent.inputs
