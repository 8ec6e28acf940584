"""Streams between two processes of this user on one node, found by the id of the actor that listens.

A call over one costs a fraction of a Ray call. Where there is none (the actor runs on another node, in another
container, or does not listen yet) callers use Ray.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import ray

_CREDENTIALS = struct.Struct("=3i")  # process, user, group: ``struct ucred`` of Linux
_MOST_PATH_BYTES = 107  # of ``sockaddr_un`` less the end of its text
_DEADLINE_S = 2.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def socket_file(actor_id: str) -> Path | None:
    """Return where an actor of this node listens; None where a socket cannot have such a path."""
    context = ray.get_runtime_context()
    file = Path(context.get_temp_dir()) / context.get_session_name() / f"outrider-{actor_id}"
    return file if len(os.fsencode(file)) <= _MOST_PATH_BYTES else None


async def listen(file: Path | None, serve: Callable[[Stream], Awaitable[None]]) -> asyncio.Server | None:
    """Listen at ``file`` in place of an earlier process; None where that is impossible.

    ``serve`` is given the streams that processes of this user open, one task each, and closes them.
    """
    if file is None or not hasattr(socket, "SO_PEERCRED"):
        return None

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if _is_ours(writer):
            await serve((reader, writer))
        else:
            writer.transport.abort()

    try:
        return await asyncio.start_unix_server(served, file)
    except OSError:  # the session's folder is not writable, or gone
        return None


async def connect(file: Path | None) -> Stream | None:
    """Open a stream to who listens at ``file``; None if that is nobody of this user."""
    if file is None:
        return None
    try:
        async with asyncio.timeout(_DEADLINE_S):
            reader, writer = await asyncio.open_unix_connection(file)
    except (OSError, TimeoutError):
        return None
    if _is_ours(writer):
        return reader, writer
    writer.transport.abort()
    return None


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Return whether this user's process is at the other end. The folder is open to all users, so no path tells."""
    credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())
