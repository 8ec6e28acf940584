"""Server-sent events with comments during silence, as proxies end silent connections."""

import asyncio

from starlette.types import Send

from actors.waiting import retrieve

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_COMMENT = b": keep-alive\n\n"


class EventStream:
    """Events of one response. One timer serves all its silences: a timer per event would cost as much as the event."""

    def __init__(self, send: Send, quiet_s: float | None) -> None:
        """After ``quiet_s`` seconds without an event a comment is sent, which begins the response if nothing has."""
        self._send, self._quiet_s = send, quiet_s
        self._loop = asyncio.get_running_loop()
        self._saying = asyncio.Lock()  # keeps parts in order if the client is slow
        self._said_at_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Task[None] | None = None
        self.begun = False
        self._wait(quiet_s)

    async def say(self, data: bytes, *, last: bool = False) -> None:
        """Send a part of the body; the first one follows the head."""
        async with self._saying:
            if not self.begun:
                self.begun = True
                await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            self._said_at_s = self._loop.time()

    def close(self) -> None:
        for pending in (self._timer, self._comment):
            if pending is not None:
                pending.cancel()
        self._quiet_s = None

    def _wait(self, seconds: float | None) -> None:
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        assert self._quiet_s is not None, "the timer was cancelled"
        left_s = self._said_at_s + self._quiet_s - self._loop.time()
        if left_s > 0:
            self._wait(left_s)
            return
        if not self._saying.locked():  # otherwise a part is on its way
            self._comment = self._loop.create_task(self.say(_COMMENT))
            self._comment.add_done_callback(retrieve)  # the next event fails as well, and raises its error
        self._wait(self._quiet_s)
