"""An HTTP response made while it is sent, as one JSON document or as server-sent events.

A client that leaves cancels its response, streamed or not, whether the server cancels the request (Serve's proxy) or
only reports the disconnect (uvicorn): leaving closes the chunk iterator, which cancels the coordinator's generator.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from outrider.errors import GenerationFailedError
from outrider.types import GenerationChunk, GenerationRequest, RoundStats
from serve_app.http_edge import told
from serve_app.openai_responses import ResponseForm, usage_of
from serve_app.service import Service, ServiceSettings

_EVENT_STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class GenerationResponse(Response):
    """Makes a response while sending it, as one JSON document or as server-sent events.

    Nothing is sent before the first chunk, so that an error until then is an HTTP error; a later one is an event of
    its own, after which the stream ends without ``[DONE]``.
    """

    def __init__(self, service: Service, request: GenerationRequest, form: ResponseForm, *, stream: bool) -> None:
        super().__init__()
        self._service = service
        self._request = request
        self._form = form
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the response and send it, unless the client leaves."""
        work = asyncio.ensure_future(self._make(scope, receive, send))
        left = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            left.cancel()
            work.cancel()
            await asyncio.gather(work, left, return_exceptions=True)

    async def _make(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with (
            aclosing(self._service.generate(self._request)) as chunks,
            aclosing(_with_deadlines(chunks, self._service.settings)) as in_time,
        ):
            if self._stream:
                await self._send_events(in_time, send, scope["state"]["request_id"])
            else:
                document = await self._document(in_time)
                await JSONResponse(document)(scope, receive, send)

    async def _document(self, chunks: AsyncIterator[GenerationChunk]) -> dict[str, object]:
        texts: list[str] = []
        tokens, reason, stats = 0, None, None
        async for chunk in chunks:  # to its end, so that no generator is cancelled that has said all
            texts.append(chunk.text)
            tokens += len(chunk.token_ids)
            reason, stats = chunk.finish_reason, chunk.stats
        if reason is None:
            raise _ended_early(self._request)
        return self._form.whole("".join(texts), reason, self._usage(tokens, stats))

    async def _send_events(self, chunks: AsyncIterator[GenerationChunk], send: Send, request_id: str) -> None:
        started = False
        try:
            async for event in self._events(chunks):
                if not started:
                    started = True
                    await send({"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM_HEADERS})
                await _send_event(send, event)
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
        except Exception as error:
            if not started:
                raise
            await _send_event(send, told(error, request_id).body)
            await send({"type": "http.response.body", "body": b""})

    async def _events(self, chunks: AsyncIterator[GenerationChunk]) -> AsyncIterator[dict[str, object]]:
        tokens, reason, stats, opened, form = 0, None, None, False, self._form
        async for chunk in chunks:
            if form.chat and not opened:
                opened = True
                yield form.role_event()
            if chunk.text:
                yield form.text_event(chunk.text)
            tokens += len(chunk.token_ids)
            reason, stats = chunk.finish_reason, chunk.stats
        if reason is None:
            raise _ended_early(self._request)
        yield form.last_event(reason)
        if form.usage_in_stream:
            yield form.usage_event(self._usage(tokens, stats))

    def _usage(self, tokens: int, stats: RoundStats | None) -> dict[str, object]:
        return usage_of(len(self._request.prompt_ids), tokens, stats or RoundStats())


async def _send_event(send: Send, content: dict[str, object]) -> None:
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _with_deadlines(
    chunks: AsyncIterator[GenerationChunk], settings: ServiceSettings
) -> AsyncGenerator[GenerationChunk, None]:
    """The same chunks; a TimeoutError if one is late."""
    deadline_s = settings.first_chunk_deadline_s
    while True:
        async with asyncio.timeout(deadline_s):
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        yield chunk
        deadline_s = settings.next_chunk_deadline_s


def _ended_early(request: GenerationRequest) -> GenerationFailedError:
    return GenerationFailedError(f"{request.generation} ended without a finish reason")
