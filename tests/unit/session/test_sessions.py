from dataclasses import fields, replace
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, NeedsPrefix, NeedsRow
from outrider.contracts.errors import ChecksumError, MessageError
from outrider.contracts.exchanged import Candidates, TargetRow, WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.session.session import CoordinatorSession, DrafterSession, payload_bits
from outrider.versions import VERSIONS, VersionRange
from outrider.wire import envelope
from outrider.wire.envelope import MessageKind, seal, unseal
from tests.unit.session.conversation import Conversation
from tests.unit.session.random_rounds import random_wire

WIRE = WireFormat(49152)
PREFIX = tuple(range(100))
CANDIDATES = Candidates(np.array([1, 2]), np.array([0.5, 0.25], dtype=np.float32))
ROW = TargetRow(np.array([1, 2]), np.array([0.5, 0.5], dtype=np.float32))


def ask(number: int, position: int, feedback: tuple[int, ...], committed: tuple[int, ...], window: int) -> DraftRequest:
    plan = DraftPlan("token_ids", window)
    return DraftRequest("g", number, position, feedback, extend_prefix_hash(EMPTY_PREFIX_HASH, committed), plan)


def opened() -> tuple[CoordinatorSession, DrafterSession]:
    return CoordinatorSession(WIRE, "g"), DrafterSession(WIRE, "g", PREFIX)


def exchanged(window: int) -> tuple[CoordinatorSession, DrafterSession, bytes]:
    """Both sessions after a first round, and its answer."""
    coordinator, drafter = opened()
    request = ask(1, 100, (7,), (*PREFIX, 7), window)
    drafter.decode_order(coordinator.encode_order(request))
    answer = drafter.encode_answer(Draft("g", 1, 101, tuple(range(40, 40 + window))))
    coordinator.decode_answer(answer, request)
    return coordinator, drafter, answer


@pytest.mark.parametrize("vocab_size", [3, 5, 257])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_rounds_are_understood(vocab_size: int, seed: int) -> None:
    rng = Random(seed)
    conversation = Conversation(rng, random_wire(rng, vocab_size))
    for _ in range(15):
        conversation.round()


def test_both_ends_write_the_version_that_is_agreed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "VERSIONS", replace(VERSIONS, messages=VersionRange(1, 2)))
    for version in (1, 2):
        rng = Random(7)
        conversation = Conversation(rng, replace(random_wire(rng, 257), version=version))
        for _ in range(20):
            order, answer = conversation.round()
            assert (order[0] >> 4, answer[0] >> 4) == (version, version)


def test_a_format_pickled_by_the_last_release_needs_no_version() -> None:
    """Nor does one of ours hold up what unpickles it there: unknown fields at the end are dropped."""
    wire = WireFormat(49152)
    older: Any = object.__new__(WireFormat)
    older.__setstate__(cast("Any", wire).__getstate__()[:-1])  # of a dataclass with slots
    assert [field.name for field in fields(WireFormat)][-1] == "version"
    coordinator, drafter = CoordinatorSession(wire, "g"), DrafterSession(older, "g", PREFIX)
    request = ask(1, 100, (7,), (*PREFIX, 7), 2)
    drafter.decode_order(coordinator.encode_order(request))
    draft = Draft("g", 1, 101, (40, 41))
    assert coordinator.decode_answer(drafter.encode_answer(draft), request) == draft


@given(seed=st.integers(0, 2**32))
@settings(max_examples=4)
def test_rounds_are_understood_at_a_real_vocabulary(seed: int) -> None:
    rng = Random(seed)
    conversation = Conversation(rng, random_wire(rng, 49152))
    for _ in range(5):
        conversation.round()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=100)
def test_lost_and_repeated_messages_do_no_harm(seed: int) -> None:
    """An order or answer may be lost or arrive twice; the two ends go on as soon as they can."""
    rng = Random(seed)
    conversation = Conversation(rng, random_wire(rng, 5))
    for _ in range(20):
        fate = rng.choice(["good", "good", "order lost", "answer lost", "twice"])
        if fate == "good":
            conversation.round()
            continue
        conversation.verdict()
        request = conversation.request()
        if fate == "order lost":
            conversation.coordinator.encode_order(request)
            conversation.verdict()
            later = replace(conversation.request(), feedback_position=len(conversation.committed) - 1)
            later = replace(later, feedback=(conversation.committed[-1],))
            data = conversation.coordinator.encode_order(later)
            if conversation.known < later.feedback_position:
                with pytest.raises(ChecksumError, match="open the generation"):
                    conversation.drafter.decode_order(data)
                conversation.reopen()
            continue
        order, heard = conversation.order(request)
        if fate == "answer lost":
            continue  # the next order is told by position
        assert conversation.drafter.answer_at_once(order) is None
        assert conversation.drafter.decode_order(order) is heard
        answer, told = conversation.answer(request, heard)
        assert conversation.coordinator.encode_order(request) == order or isinstance(told, NeedsPrefix)
        assert conversation.drafter.answer_at_once(order) == answer
        if isinstance(told, NeedsPrefix):
            conversation.reopen()


def test_a_small_round_is_a_few_bytes() -> None:
    coordinator, drafter, answer = exchanged(2)
    assert payload_bits(answer) <= 72
    request = ask(2, 101, (40, 9), (*PREFIX, 7, 40, 9), 2)
    order = coordinator.encode_order(request)
    assert payload_bits(order) <= 64
    assert drafter.decode_order(order) == request
    coordinator, drafter, _ = exchanged(7)
    request = ask(2, 101, (40, 41, 42, 9), (*PREFIX, 7, 40, 41, 42, 9), 6)  # another window
    order = coordinator.encode_order(request)
    assert payload_bits(order) <= 64
    assert drafter.decode_order(order) == request


def test_only_an_answered_order_makes_the_next_one_relative() -> None:
    coordinator, _, _ = exchanged(2)
    follows = ask(2, 101, (40, 9), (*PREFIX, 7, 40, 9), 2)
    assert unseal(coordinator.encode_order(follows)).kind is MessageKind.ORDER
    again = ask(3, 103, (5,), (*PREFIX, 7, 40, 9, 5), 2)
    assert unseal(coordinator.encode_order(again)).kind is MessageKind.ABSOLUTE_ORDER
    coordinator, _, _ = exchanged(2)
    elsewhere = ask(2, 100, (7, 40, 9), (*PREFIX, 7, 40, 9), 2)
    assert unseal(coordinator.encode_order(elsewhere)).kind is MessageKind.ABSOLUTE_ORDER


def test_the_same_request_is_the_same_message_until_the_prefix_is_needed() -> None:
    coordinator, drafter, _ = exchanged(2)
    request = ask(2, 101, (40, 9), (*PREFIX, 7, 40, 9), 2)
    order = coordinator.encode_order(request)
    assert coordinator.encode_order(replace(request)) == order
    drafter.decode_order(order)
    answer = drafter.encode_answer(NeedsPrefix("g", 2))
    assert coordinator.decode_answer(answer, request) == NeedsPrefix("g", 2)
    anew = coordinator.encode_order(request)
    assert unseal(anew).kind is MessageKind.ABSOLUTE_ORDER
    assert DrafterSession(WIRE, "g", (*PREFIX, 7)).decode_order(anew) == request


def test_candidates_that_all_fail_are_followed_by_the_row() -> None:
    coordinator, drafter, _ = exchanged(2)
    request = replace(ask(2, 101, (40,), (*PREFIX, 7, 40), 2), correction=CANDIDATES)
    drafter.decode_order(coordinator.encode_order(request))
    assert coordinator.decode_answer(drafter.encode_answer(NeedsRow("g", 2)), request) == NeedsRow("g", 2)
    request = replace(request, correction=ROW)
    assert drafter.decode_order(coordinator.encode_order(request)) == request
    draft = Draft("g", 2, 102, (3, 4), correction=2)
    assert coordinator.decode_answer(drafter.encode_answer(draft), request) == draft
    follows = ask(3, 102, (2, 3, 8), (*PREFIX, 7, 40, 2, 3, 8), 2)
    order = coordinator.encode_order(follows)
    assert unseal(order).kind is MessageKind.ORDER
    assert drafter.decode_order(order) == follows


def test_an_order_for_another_prefix_changes_nothing() -> None:
    coordinator, drafter, _ = exchanged(2)
    request = ask(2, 101, (40, 9), (*PREFIX, 7, 40, 9), 2)
    wrong = replace(request, prefix_hash=request.prefix_hash ^ 1)
    good = coordinator.encode_order(request)
    bad = seal(MessageKind.ORDER, 2, unseal(good).body, wrong.prefix_hash)
    with pytest.raises(ChecksumError, match="disagree about the committed tokens"):
        drafter.decode_order(bad)
    assert drafter.decode_order(good) == request


def test_a_drafter_that_never_sent_a_block_asks_for_the_generation() -> None:
    coordinator, _, _ = exchanged(2)
    order = coordinator.encode_order(ask(2, 101, (40, 9), (*PREFIX, 7, 40, 9), 2))
    with pytest.raises(ChecksumError, match="never sent"):
        DrafterSession(WIRE, "g", (*PREFIX, 7)).decode_order(order)


def test_a_drafter_that_lacks_tokens_asks_for_the_generation() -> None:
    coordinator, drafter = opened()
    with pytest.raises(ChecksumError, match="starts at position 101, this side has 100 tokens"):
        drafter.decode_order(coordinator.encode_order(ask(1, 101, (7,), (*PREFIX, 6, 7), 2)))


def test_answers_are_bound_to_the_order_they_answer() -> None:
    coordinator, drafter, first = exchanged(2)
    request = ask(257, 101, (40, 9), (*PREFIX, 7, 40, 9), 2)  # the same low bits as round 1
    drafter.decode_order(coordinator.encode_order(request))
    with pytest.raises(ChecksumError, match="does not fit"):
        coordinator.decode_answer(first, request)
    with pytest.raises(MessageError, match="last order"):
        coordinator.decode_answer(first, ask(1, 100, (7,), (*PREFIX, 7), 2))
    good = drafter.encode_answer(Draft("g", 1, 103, (1, 2)))
    assert coordinator.decode_answer(good, request) == Draft("g", 257, 103, (1, 2))


def test_what_answers_nothing_is_refused() -> None:
    coordinator, drafter, _ = exchanged(2)
    request = ask(2, 101, (40, 9), (*PREFIX, 7, 40, 9), 2)
    order = coordinator.encode_order(request)
    drafter.decode_order(order)
    for answer, reason in (
        (Draft("g", 1, 103, (1,)), "answer to the last order"),
        (Draft("h", 2, 103, (1,)), "answer to the last order"),
        (Draft("g", 2, 104, (1,)), "position 103"),
        (Draft("g", 2, 103, (1,), correction=3), "correction iff"),
        (Draft("g", 2, 103, (49152,)), r"0\.\.49151"),
    ):
        with pytest.raises(MessageError, match=reason):
            drafter.encode_answer(answer)
    for data, reason in (
        (order, "found ORDER"),
        (seal(MessageKind.BLOCK, 3, b"", request.prefix_hash), "found BLOCK of 3"),
        (seal(MessageKind.NEEDS_ROW, 2, b"", request.prefix_hash), "no candidates"),
        (seal(MessageKind.NEEDS_PREFIX, 2, b"\0", request.prefix_hash), "oversized"),
        (seal(MessageKind.BLOCK, 2, b"", request.prefix_hash), "truncated"),
        (seal(MessageKind.BLOCK, 2, bytes(9), request.prefix_hash), "oversized"),
    ):
        with pytest.raises(MessageError, match=reason):
            coordinator.decode_answer(data, request)
    with pytest.raises(MessageError, match="needs an order, found BLOCK"):
        drafter.decode_order(seal(MessageKind.BLOCK, 2, b"", request.prefix_hash))
    draft = Draft("g", 2, 103, (1, 2))
    assert coordinator.decode_answer(drafter.encode_answer(draft), request) == draft


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"generation": "h"}, "generation g"),
        ({"want_hidden": True}, "hidden states"),
        ({"feedback": (49152,)}, r"0\.\.49151"),
        ({"plan": DraftPlan("tslt", 128)}, r"0\.\.127 tokens"),
        ({"plan": DraftPlan("tslt_tree", 3, (10, 10, 10))}, r"0\.\.127 tokens"),
        ({"plan": DraftPlan("tslt_tree", 2, (2, 2, 2))}, "2 numbers of children"),
        ({"plan": DraftPlan("tslt_tree", 1, (0,))}, "children >= 1"),
        ({"plan": DraftPlan("tslt", 2, (2, 2))}, "tree protocol"),
        ({"plan": DraftPlan("tslt_tree", 2, rows=4)}, "a protocol with dynamic trees"),
        ({"plan": DraftPlan("token_ids", 2, (2, 1), rows=4)}, "no other shape"),
        ({"plan": DraftPlan("token_ids", 5, rows=4)}, r"a window of 1\.\.4"),
        ({"plan": DraftPlan("token_ids", 5, rows=128)}, r"0\.\.127 tokens, found window 5 with 128 rows"),
        ({"correction": Candidates(np.array([49152]), np.array([0.5], dtype=np.float32))}, r"0\.\.49151"),
    ],
)
def test_an_order_that_cannot_be_told_is_refused(changes: dict[str, object], reason: str) -> None:
    coordinator, drafter, _ = exchanged(2)
    request = ask(2, 101, (40, 9), (*PREFIX, 7, 40, 9), 2)
    with pytest.raises(MessageError, match=reason):
        coordinator.encode_order(replace(request, **changes))  # type: ignore[arg-type]
    assert drafter.decode_order(coordinator.encode_order(request)) == request


def test_a_verdict_behind_the_end_of_the_last_block_is_a_disagreement() -> None:
    _, drafter, _ = exchanged(2)
    with pytest.raises(ChecksumError, match="token 3 of a last block of 2"):
        drafter.decode_order(seal(MessageKind.ORDER, 2, b"\xff\xff\xff\xff", 0))


def test_an_absolute_order_without_a_plan_is_refused() -> None:
    _, drafter, _ = exchanged(2)
    prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, ())
    with pytest.raises(MessageError, match="its own plan"):
        drafter.decode_order(seal(MessageKind.ABSOLUTE_ORDER, 2, bytes([0x00, 0x80]), prefix_hash))


@pytest.mark.parametrize("kept", range(5))
def test_behind_a_draft_that_was_cut_both_ends_agree_as_behind_a_rejection(kept: int) -> None:
    """The verdict names what is committed; the token behind it may be the very one that was cut off."""
    coordinator, drafter, _ = exchanged(4)
    for number, token_id in ((2, 5), (2, 40 + kept)):
        committed = (*range(40, 40 + kept), token_id)
        request = ask(number, 101, committed, (*PREFIX, 7, *committed), 4)
        heard = drafter.decode_order(coordinator.encode_order(request))
        assert (heard.feedback_position, heard.feedback, heard.prefix_hash) == (101, committed, request.prefix_hash)
        coordinator, drafter, _ = exchanged(4)
