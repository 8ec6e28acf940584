"""Frames of WebSockets: what a client sends is read however it is cut, and nothing but what is allowed."""

import itertools
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.web_frames import BINARY, CLOSE, PING, PONG, ClientFrames
from outrider.contracts.errors import MessageError

MOST_BYTES = 70_000
MESSAGES = st.tuples(st.sampled_from([BINARY, PING, PONG, CLOSE]), st.binary(max_size=125))


def masked(first: int, data: bytes, mask: bytes = b"mask") -> bytes:
    size = len(data)
    length = struct.pack(">BQ", 255, size) if size >= 2**16 else struct.pack(">BH", 254, size)
    length = bytes([0x80 | size]) if size < 126 else length
    return bytes([first]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


def read(frames: ClientFrames) -> list[tuple[int, bytes]]:
    return list(iter(frames.next, None))


@given(st.lists(MESSAGES), st.lists(st.integers(1, 200), min_size=1), st.binary(min_size=4, max_size=4))
def test_messages_are_read_however_they_are_cut(
    messages: list[tuple[int, bytes]], cuts: list[int], mask: bytes
) -> None:
    frames, found = ClientFrames(MOST_BYTES), list[tuple[int, bytes]]()
    data = b"".join(masked(0x80 | kind, content, mask) for kind, content in messages)
    for cut in itertools.cycle(cuts):
        if not data:
            break
        frames.add(data[:cut])
        data = data[cut:]
        found += read(frames)
    assert found == messages


@pytest.mark.parametrize("size", [0, 125, 126, 2**16 - 1, 2**16, MOST_BYTES])
def test_sizes_are_read(size: int) -> None:
    content, frames = os.urandom(size), ClientFrames(MOST_BYTES)
    frames.add(masked(0x82, content) + masked(0x89, b""))
    assert read(frames) == [(BINARY, content), (PING, b"")]


def test_a_message_in_several_frames_is_one_with_pings_between() -> None:
    frames = ClientFrames(6)
    for part in (masked(0x02, b""), masked(0x00, b"ab"), masked(0x89, b"?"), masked(0x80, b"cd"), masked(0x82, b"e")):
        frames.add(part)
    assert read(frames) == [(PING, b"?"), (BINARY, b"abcd"), (BINARY, b"e")]


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x01a",  # not masked
        b"\xc2\x80",  # an extension
        masked(0x81, b"text"),
        masked(0x80, b"what continues nothing"),
        masked(0x02, b"a") + masked(0x82, b"b"),
        masked(0x02, b"abc") + masked(0x80, b"defg"),
        masked(0x82, b"1234567"),
        b"\x82\xff" + b"\xff" * 8,
        masked(0x09, b""),
        masked(0x8B, b""),
        masked(0x83, b""),
        masked(0x02, b"") + masked(0x00, b"") * 1024,
        b"\x89\xfe\x00\x80",
    ],
)
def test_anything_else_is_refused_before_it_is_whole(data: bytes) -> None:
    frames = ClientFrames(6)
    frames.add(data)
    with pytest.raises(MessageError):
        read(frames)


@given(st.lists(st.binary(max_size=40)))
def test_what_is_no_frame_is_refused_or_waited_for(parts: list[bytes]) -> None:
    frames = ClientFrames(100)
    try:
        for part in parts:
            frames.add(part)
            for kind, content in read(frames):
                assert kind in (BINARY, CLOSE, PING, PONG)
                assert len(content) <= 125
    except MessageError:
        pass
