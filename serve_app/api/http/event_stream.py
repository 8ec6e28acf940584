"""Server-sent events, with a comment now and then while there is none: proxies end connections that are silent."""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import Send

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_COMMENT = b": keep-alive\n\n"


class EventStream:
    """Of one response. One timer serves all of its silences: one for each event would cost as much as the event."""

    def __init__(self, send: Send, quiet_s: float | None, reader_s: float) -> None:
        """Say nothing yet; ``quiet_s`` seconds after the last event a comment is sent, which begins the response.

        A server that waits for its client to read gives the whole of a part back to us in ``reader_s``, or the client
        counts as gone. Serve's proxy never waits, and our own listener finds out by itself.
        """
        self._send, self._quiet_s, self._reader_s = send, quiet_s, reader_s
        self._pace_s = reader_s if quiet_s is None else min(quiet_s, reader_s)
        self._loop = asyncio.get_running_loop()
        self._saying = asyncio.Lock()  # parts do not overtake one another where the client is slow
        self._saying_at_s = self._said_at_s = self._loop.time()
        self._sayer: asyncio.Task[object] | None = None  # while a part is on its way
        self._is_unread = False
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Task[None] | None = None
        self.begun = False
        self._wait(self._pace_s)

    async def say(self, data: bytes, *, last: bool = False) -> None:
        """Send a part of the body, behind the head if it is the first.

        Raises:
            ClientDisconnect: the client does not read.
        """
        async with self._saying:
            if self._is_unread:
                raise ClientDisconnect
            self._sayer, self._saying_at_s = asyncio.current_task(self._loop), self._loop.time()
            try:
                if not self.begun:
                    self.begun = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                    self._saying_at_s = self._loop.time()
                await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            except asyncio.CancelledError:
                if not self._is_unread:
                    raise
                self._sayer.uncancel()
                raise ClientDisconnect from None
            finally:
                self._sayer = None
            self._said_at_s = self._loop.time()

    def close(self) -> None:
        """Say nothing more."""
        for pending in (self._timer, self._comment):
            if pending is not None:
                pending.cancel()

    def _wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        now_s, next_s = self._loop.time(), self._pace_s
        if self._sayer is not None:
            if now_s - self._saying_at_s >= self._reader_s:
                self._is_unread = True
                self._sayer.cancel()
                return
        elif self._quiet_s is not None and not self._saying.locked():
            left_s = self._said_at_s + self._quiet_s - now_s
            if left_s > 0:
                next_s = min(left_s, next_s)
            else:
                self._comment = self._loop.create_task(self.say(_COMMENT))
                self._comment.add_done_callback(_heard)
        self._wait(next_s)


def _heard(comment: "asyncio.Task[None]") -> None:
    """If it failed, the next event does, too: it is that one's to be told of."""
    if not comment.cancelled():
        comment.exception()
