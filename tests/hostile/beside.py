"""A well-behaved client beside hostile ones, in a process of its own: ``python -m tests.hostile.beside URL KEY FILE``.

Two streams again and again, a short one every second for its first token, and ``/health`` every 20 ms. Each thing that
happens is a line of FILE, by the monotonic clock that all processes of a machine share:

    health AT SECONDS      an answer, or that there was none, and how long that took
    late AT SECONDS        how much later than asked for this process itself was woken: what the machine adds to all
    asks AT STREAM         a stream is asked for, when its last one is over
    token AT STREAM        an event of a stream with text
    first AT SECONDS       a stream's first token, and how long it took
    text AT WHICH SHA256   a greedy response that is asked for again and again, so that each has to be the same
    broken AT REASON       a response that was refused, failed or broke
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import TextIO

from tests.hostile.raw_http import HOST, connect, head_of

PROBE_EVERY_S = 0.02
LONG_TOKENS, SHORT_TOKENS = 200, 2
_STREAMS, _STORIES = 2, 5
_PAUSE_S, _RETRY_S = 1.0, 0.2
_PROBE_WITHIN_S, _SILENT_S = 60.0, 120.0
_MODEL = "smollm2-135m-instruct"


class Beside:
    """Asks, and writes down what happens."""

    def __init__(self, port: int, key: str, out: TextIO) -> None:
        self._port, self._key, self._out = port, key, out

    async def run(self) -> None:
        """Until the process is ended."""
        streams = [self._stream(str(i), LONG_TOKENS, 0.0) for i in range(_STREAMS)]
        await asyncio.gather(
            self._watch_itself(), self._probe(), *streams, self._stream("short", SHORT_TOKENS, _PAUSE_S)
        )

    def _note(self, kind: str, value: object) -> None:
        self._out.write(f"{kind} {time.monotonic():.4f} {value}\n")
        self._out.flush()

    async def _watch_itself(self) -> None:
        while True:
            asked_s = time.monotonic()
            await asyncio.sleep(PROBE_EVERY_S)
            self._note("late", f"{time.monotonic() - asked_s - PROBE_EVERY_S:.4f}")

    async def _probe(self) -> None:
        sent_s = time.monotonic()
        while True:
            try:
                async with connect(self._port, source=HOST) as (reader, writer):
                    while True:
                        sent_s = time.monotonic()
                        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                        async with asyncio.timeout(_PROBE_WITHIN_S):
                            head = await reader.readuntil(b"\r\n\r\n")
                            await reader.readexactly(_length(head))
                        self._note("health", f"{time.monotonic() - sent_s:.4f}")
                        await asyncio.sleep(PROBE_EVERY_S)
            except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
                self._note("health", f"{time.monotonic() - sent_s:.4f}")  # no answer, for so long
                await asyncio.sleep(_RETRY_S)

    async def _stream(self, name: str, tokens: int, pause_s: float) -> None:
        number = 0
        while True:
            number += 1
            began_s, first = time.monotonic(), True
            self._note("asks", f"{name}/{number}")
            story, text = number % _STORIES, sha256()
            try:
                async for piece in self._events(tokens, f"Tell me story {story} of a lighthouse keeper. "):
                    text.update(piece.encode())
                    if first:
                        self._note("first", f"{time.monotonic() - began_s:.4f}")
                    self._note("token", f"{name}/{number}")
                    first = False
                self._note("text", f"{tokens}/{story} {text.hexdigest()[:16]}")
            except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError) as error:
                self._note("broken", f"{error!r:.100}".replace("\n", " "))
                await asyncio.sleep(_RETRY_S)
            await asyncio.sleep(pause_s)

    async def _events(self, tokens: int, prompt: str) -> AsyncIterator[str]:
        """Texts of the events that have one.

        Raises:
            ValueError: it was refused or failed.
            OSError, EOFError, TimeoutError: its connection broke or is silent.
        """
        body = json.dumps(
            {"model": _MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
            | {"ignore_eos": True}
        ).encode()
        async with connect(self._port, source=HOST) as (reader, writer), asyncio.timeout(None) as silence:
            writer.write(head_of("/v1/completions", self._key, len(body)) + body)
            loop = asyncio.get_running_loop()
            silence.reschedule(loop.time() + _SILENT_S)
            head = await reader.readuntil(b"\r\n\r\n")
            if head[9:12] != b"200":
                raise ValueError(head[:15].decode() + (await reader.read(200)).decode(errors="replace"))
            while True:
                line = await reader.readline()
                silence.reschedule(loop.time() + _SILENT_S)
                if not line:
                    raise EOFError("a stream that was cut")
                if line.startswith(b"data: [DONE]"):
                    return
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise ValueError(f"{event['error']}")
                    if piece := "".join(choice["text"] for choice in event["choices"]):
                        yield piece


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)


if __name__ == "__main__":
    with Path(sys.argv[3]).open("w") as file:
        asyncio.run(Beside(int(sys.argv[1]), sys.argv[2], file).run())
