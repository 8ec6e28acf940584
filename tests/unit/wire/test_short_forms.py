"""Short forms of calls and replies: both ends of a connection agree on what they stand for, whatever came before."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import MessageError
from outrider.wire.calls import exchange_head, read_call, write_call
from outrider.wire.dialling import Bye, MoveTo, NumberedCall, NumberedReply, write_dialled
from outrider.wire.replies import Answer, DrafterHoldings, plain, plain_failure
from outrider.wire.replies import read_reply as read_plain
from outrider.wire.short_forms import PLACES, CallHeads, read_from_device, write_reply

NAME = "chatcmpl-0123456789abcdef0123456789abcdef-0"
NUMBERS = st.integers(0, 511)
CALLS = st.one_of(
    st.builds(lambda name, order: write_call("exchange", f"{name}", order), st.integers(0, 600), st.binary(max_size=9)),
    st.builds(lambda name: write_call("close", f"{name}"), st.integers(0, 9)),
    st.binary(max_size=60),
    st.just(bytes([7, 4, 255, 255])),
)


def test_a_round_has_five_bytes_besides_order_and_answer() -> None:
    heads, theirs = CallHeads(), CallHeads()
    call = NumberedCall(127, write_call("exchange", NAME, b"order"))
    first, second = heads.write(call), heads.write(call)
    assert (len(first), len(second)) == (5 + 2 + 2 + 43 + 5, 2 + 5)
    assert [theirs.read(first), theirs.read(second)] == [call, call]
    assert len(write_reply(NumberedReply(127, plain(Answer(b"answer", 0.02))))) == 3 + 6


@given(st.lists(st.tuples(NUMBERS, CALLS), max_size=40))
def test_what_is_written_is_read(calls: list[tuple[int, bytes]]) -> None:
    ours, theirs = CallHeads(), CallHeads()
    for message in (NumberedCall(*each) for each in calls):
        assert theirs.read(ours.write(message)) == message
    assert theirs.read(ours.write(MoveTo("a:1", "why"))) == MoveTo("a:1", "why")


def test_more_texts_than_places_take_the_oldest_ones() -> None:
    ours, theirs = CallHeads(), CallHeads()
    sizes = list[int]()
    for name in (*range(PLACES + 2), 2, 0, 0, PLACES + 1):
        message = NumberedCall(1, write_call("exchange", f"{name:043}", b""))
        sizes.append(len(data := ours.write(message)))
        assert theirs.read(data) == message
    assert sizes[-4:] == [2, sizes[0], 2, 2]


@pytest.mark.parametrize("data", [b"\x80", b"\x80\x00", b"\xff\x01rest", b"\x80\xff", b"", b"\x7f"])
def test_a_place_that_nothing_has_taken_is_no_call(data: bytes) -> None:
    with pytest.raises(MessageError):
        CallHeads().read(data)


@given(first=st.binary(max_size=80), then=st.lists(st.binary(max_size=12), max_size=9))
def test_damaged_calls_are_calls_or_refused(first: bytes, then: list[bytes]) -> None:
    heads = CallHeads()
    heads.read(write_dialled(NumberedCall(1, write_call("exchange", NAME, b""))))
    for data in (b"\x04" + first, *then):
        try:
            found = heads.read(data)
        except MessageError:
            continue
        if data[0] & 0x80:
            assert isinstance(found, NumberedCall)
            assert len(found.call) <= len(data) + 4 + 800


@given(NUMBERS, st.floats(0.0, 60_000.0), st.binary(max_size=20))
def test_seconds_of_an_answer_are_half_precise(number: int, seconds: float, data: bytes) -> None:
    message = read_from_device(write_reply(NumberedReply(number, plain(Answer(data, seconds)))))
    assert isinstance(message, NumberedReply)
    assert message.number == number
    answer = read_plain(message.reply)
    assert isinstance(answer, Answer)
    assert answer.data == data
    assert math.isclose(answer.drafter_s, seconds, rel_tol=2e-3, abs_tol=1e-7)


@pytest.mark.parametrize(
    "reply", [plain(None), plain(Answer(b"", 1e9)), plain(DrafterHoldings(("a",))), plain_failure(ValueError()), b""]
)
def test_other_replies_are_whole(reply: bytes) -> None:
    message = NumberedReply(5, reply)
    assert read_from_device(write_reply(message)) == message
    assert read_from_device(write_dialled(Bye())) == Bye()


@given(st.binary(max_size=30))
def test_damaged_replies_are_replies_or_refused(data: bytes) -> None:
    try:
        message = read_from_device(b"\x80" + data)
    except MessageError:
        assert len(data) < 2
    else:
        assert isinstance(message, NumberedReply)


@given(st.binary(max_size=40))
def test_a_head_is_what_comes_before_an_order(order: bytes) -> None:
    call = write_call("exchange", NAME, order)
    head = exchange_head(call)
    assert head is not None
    assert head + order == call
    assert read_call(head) == ("exchange", (NAME, b""))
    assert exchange_head(write_call("close", NAME)) is None
    assert exchange_head(call[: len(head) - 1]) is None
