import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ChecksumError, MessageError
from outrider.wire.envelope import MAX_MESSAGE_BYTES, MessageKind, check, envelope_bits, seal, unseal

HASHES = st.integers(0, 2**61 - 2)


@given(st.sampled_from(list(MessageKind)), st.integers(0, 2**20), st.binary(max_size=50), HASHES)
def test_an_envelope_keeps_what_is_in_it(kind: MessageKind, number: int, body: bytes, prefix_hash: int) -> None:
    data = seal(kind, number, body, prefix_hash)
    message = unseal(data)
    assert (message.kind, message.round_low, message.body) == (kind, number % 256, body)
    check(message, prefix_hash)
    assert len(data) * 8 == envelope_bits(len(body) * 8)


@pytest.mark.parametrize(("body_bytes", "overhead_bytes"), [(0, 4), (4095, 4), (4096, 6), (5000, 6)])
def test_the_envelope_is_four_bytes_for_short_bodies(body_bytes: int, overhead_bytes: int) -> None:
    data = seal(MessageKind.BLOCK, 1, bytes(body_bytes), 5)
    assert len(data) == body_bytes + overhead_bytes
    message = unseal(data)
    assert len(message.body) == body_bytes
    check(message, 5)


@given(st.binary(min_size=1, max_size=40), HASHES, st.integers(0), st.integers(1, 2**16 - 1))
def test_a_burst_of_errors_is_noticed(body: bytes, prefix_hash: int, place: int, burst: int) -> None:
    """A CRC of 16 bits finds every burst of at most 16 bits."""
    data = seal(MessageKind.BLOCK, 7, body, prefix_hash)
    offset = 16 + place % ((len(data) - 2) * 8 - 15)  # behind version and kind, whose damage has other names
    flipped = int.from_bytes(data, "big") ^ burst << (len(data) * 8 - offset - 16)
    with pytest.raises(ChecksumError, match="round 7"):
        check(unseal(flipped.to_bytes(len(data), "big")), prefix_hash)


@given(one=HASHES, burst=st.integers(1, 2**16 - 1), shift=st.integers(0, 45), long=st.booleans())
def test_another_prefix_does_not_fit(one: int, burst: int, shift: int, *, long: bool) -> None:
    """For certain if the hashes differ in at most 16 neighbouring bits, else with a probability of 1 - 2**-16."""
    with pytest.raises(ChecksumError, match="disagree about the committed tokens"):
        check(unseal(seal(MessageKind.ORDER, 7, bytes(5000 if long else 5), one)), one ^ burst << shift)


def test_what_is_no_message_is_named() -> None:
    data = seal(MessageKind.BLOCK, 7, b"abc", 5)
    with pytest.raises(MessageError, match="version 2, found 1"):
        unseal(bytes([0x10 | MessageKind.BLOCK]) + data[1:])
    with pytest.raises(MessageError, match="kind in"):
        unseal(bytes([0x2F]) + data[1:])
    with pytest.raises(MessageError, match="truncated or oversized"):
        unseal(data[:3])
    with pytest.raises(MessageError, match="truncated or oversized"):
        unseal(data[:1] + bytes(MAX_MESSAGE_BYTES))
    with pytest.raises(MessageError, match="draft fewer tokens"):
        seal(MessageKind.BLOCK, 7, bytes(MAX_MESSAGE_BYTES), 5)
