"""Frames calls and replies on a byte stream: length, the call's number, and the call or its reply.

Who reads says how long the content of a frame may be, and nothing of a longer one is read.
"""

import struct
from collections.abc import Callable
from typing import Protocol

from outrider.contracts.errors import MessageError

_HEAD = struct.Struct(">IH")  # length, number of the call


class ExactReader(Protocol):
    async def readexactly(self, n: int, /) -> bytes: ...


def frame(number: int, content: bytes) -> bytes:
    return _HEAD.pack(len(content), number) + content


async def read_head(reader: ExactReader) -> tuple[int, int]:
    """Return the number of the next frame and the length of its content, which follows."""
    length, number = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return number, length


async def read_frame(reader: ExactReader, most_bytes: Callable[[int], int]) -> tuple[int, bytes]:
    """Return the next frame's number and content.

    Args:
        reader: of the stream.
        most_bytes: returns how long the content may be, by the call's number.

    Raises:
        MessageError: the frame is longer; the stream is of no further use.
        asyncio.IncompleteReadError: the stream has ended.
    """
    number, length = await read_head(reader)
    check_length(number, length, most_bytes(number))
    return number, await reader.readexactly(length)


def check_length(number: int, length: int, most_bytes: int) -> None:
    if length > most_bytes:
        raise MessageError(
            f"needs a frame of at most {most_bytes} bytes for call {number}, found {length}; it was not read"
        )
