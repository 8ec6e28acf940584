"""Messages between the benchmark and the processes that it starts: pickles on a local socket, one after the other."""

import asyncio
import pickle
import struct
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

_LENGTH = struct.Struct(">I")
_ENDS_WITHIN_S = 10.0


def put(writer: asyncio.StreamWriter, message: object) -> None:
    data = pickle.dumps(message)
    writer.write(_LENGTH.pack(len(data)) + data)


async def take(reader: asyncio.StreamReader) -> Any:
    """Return the next message; ``asyncio.IncompleteReadError``: the other process has ended."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 (of our own processes)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run on the event loop that gateways have as Ray actors."""
    return uvloop.run(work)


@asynccontextmanager
async def child(module: str, *arguments: str, nice: int = 0, prefix: tuple[str, ...] = ()) -> AsyncIterator[int]:
    """Run ``python -m MODULE`` while the block is open; yields its process id."""
    command = (*prefix, "nice", "-n", str(nice), sys.executable, "-m", module, *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(_ENDS_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def reached(socket: Path, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a child's side of the stream to the benchmark."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    put(writer, name)
    return reader, writer


async def until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait; a ``TimeoutError`` says what for."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 (counters of other processes have no event)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise TimeoutError(f"needs {what} within {within_s:g} s") from None
