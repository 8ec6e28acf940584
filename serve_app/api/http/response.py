"""HTTP response that is generated while it is sent, as one JSON document or as server-sent events.

A client that disconnects cancels its response, streamed or not, whether the server cancels the request (Serve's proxy)
or only reports the disconnect (uvicorn): the chunk iterators are closed, which cancels the coordinators' generators.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from fastapi.responses import Response
from pydantic import TypeAdapter
from starlette.types import Receive, Scope, Send

from outrider.contracts.errors import GenerationFailedError
from outrider.contracts.requests import FinishReason, GenerationChunk
from serve_app.answers import AnswerExtension, ChatCompletionChunk, Chunk, ErrorBody
from serve_app.api.http.event_stream import EventStream
from serve_app.api.http.merge import merged, with_deadlines
from serve_app.api.http.record import RequestRecord
from serve_app.api.openai.choices import Choice
from serve_app.api.openai.fields.answer_extension import answer_extension
from serve_app.api.openai.promises import granted_tier
from serve_app.api.openai.writing.choice_reader import KEPT_REPORTS, ChoiceDelta, ChoiceReader
from serve_app.api.openai.writing.documents import ChoiceDocument, document
from serve_app.api.openai.writing.message_pieces import MessagePieces
from serve_app.api.openai.writing.response_form import ResponseForm
from serve_app.api.openai.writing.usage import token_counts, usage_of
from serve_app.api.service import Pass, RequestLimits, Service, ServiceSettings
from serve_app.api.written import encode

_MANY_TOKENS = 256  # log-probabilities of this many tokens are serialised in a thread: a prompt's come all at once
_PART_BYTES = 2**16  # of a document, per send
_encode_text: Callable[[Any], bytes] = TypeAdapter(dict[str, object]).dump_json
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
_Chunks = AsyncIterator[tuple[int, GenerationChunk]]  # of all choices, each with its choice's index


class GenerationResponse(Response):
    """Makes all choices of a response concurrently while sending it, as one JSON document or as server-sent events.

    Nothing is sent before the first chunk, so that an error until then is an HTTP error; a later one is an event, after
    which the stream ends without ``[DONE]``. The same holds if a comment had to keep the connection alive before the
    first chunk. An error of any choice is the response's.
    """

    def __init__(
        self,
        service: Service,
        settings: ServiceSettings,
        choices: Sequence[Choice],
        form: ResponseForm,
        passed: Pass,
        in_thread: InThread,
        limits: RequestLimits,
    ) -> None:
        """``settings`` and ``limits`` stay in effect. ``passed`` is called when the response ends, in whatever way."""
        super().__init__()
        self._limits = limits
        self._passed, self._in_thread = passed, in_thread
        self._service, self._settings = service, settings
        kept_reports = max(1, KEPT_REPORTS // len(choices))
        ids = form.body.return_token_ids
        self._readers = [
            ChoiceReader(choice, form.table, kept_reports, form.message_deltas(choice.index), token_ids=ids)
            for choice in choices
        ]
        self._form = form
        self._unended, self._made_tokens = len(choices), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: RequestRecord = scope["state"]["record"]
        left = asyncio.ensure_future(_disconnected(receive))
        tasks: list[asyncio.Future[None]] = [left]
        try:
            await asyncio.sleep(0)
            if not left.done():  # start nothing if the client has already disconnected
                tasks.append(asyncio.ensure_future(self._make(scope, receive, send)))
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[-1] is not left and tasks[-1].done():
                tasks[-1].result()
            else:
                record.left = True
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            record.facts |= self._facts()
            self._settle()

    def _settle(self) -> None:
        """Count its tokens for its key, against its quota and in the metrics."""
        prompt, made = self._prompt_tokens(), self._completion_tokens()
        self._passed(prompt + made)
        if self._limits.tenant:
            self._service.used(self._limits.tenant, prompt_tokens=prompt, generation_tokens=made)

    async def _make(self, scope: Scope, receive: Receive, send: Send) -> None:
        generations = [self._service.generate(reader.choice.request) for reader in self._readers]
        in_time = [with_deadlines(chunks, self._settings) for chunks in generations]
        async with aclosing(merged(in_time)) as chunks:
            if self._form.body.stream:
                await self._send_events(chunks, send, scope["state"]["record"])
            else:
                await (await self._document(chunks))(scope, receive, send)

    async def _document(self, chunks: _Chunks) -> Response:
        form = self._form
        choices = [ChoiceDocument(form, index, reader.message) for index, reader in enumerate(self._readers)]
        async for index, chunk in chunks:  # exhausted, so that no complete generator is cancelled
            for delta in await self._read(index, chunk):
                if choices[index].held_tokens + len(delta.tokens) < _MANY_TOKENS:
                    choices[index].add(delta)
                else:
                    await self._in_thread(partial(choices[index].add, delta))
        make = partial(document, form, choices, self._reasons(), usage_of(self._readers), self._extension())
        is_long = self._made_tokens >= _MANY_TOKENS
        return DocumentResponse(await self._in_thread(make) if is_long else make())

    async def _send_events(self, chunks: _Chunks, send: Send, record: RequestRecord) -> None:
        stream = EventStream(send, self._settings.http.keep_alive_s)
        try:
            async for event in self._events(chunks):
                if data := await self._event(event):
                    await stream.say(data)
            await stream.say(b"data: [DONE]\n\n" if self._form.writer is None else b"", last=True)
        except Exception as error:
            if not stream.begun:
                raise
            answer, writer = record.answer_to(error), self._form.writer
            await stream.say(b"".join(writer.failure(answer)) if writer else await self._event(answer.body))
            await stream.say(b"", last=True)
        finally:
            stream.close()

    async def _events(self, chunks: _Chunks) -> AsyncIterator[Chunk]:
        options, prompt_tokens = self._form.body.stream_options, self._prompt_tokens()
        async for event in self._choice_events(chunks):
            if options.continuous_usage_stats:
                is_all = self._is_last(event) and not options.include_usage
                event["usage"] = usage_of(self._readers) if is_all else token_counts(prompt_tokens, self._made_tokens)
            yield event
        self._reasons()
        if options.include_usage:
            yield self._form.usage_event(usage_of(self._readers), self._extension())

    def _extension(self, *, metrics: bool = True) -> AnswerExtension:
        extension = answer_extension(
            self._readers, partial(granted_tier, self._form.body.service_tier, limits=self._limits)
        )
        if not metrics:
            extension.pop("metrics", None)
        if self._form.writer is not None:
            self._form.writer.stop_string = self._readers[0].stop_string
        return extension

    def _is_last(self, event: Chunk) -> bool:
        return not self._unended and event["choices"][0]["finish_reason"] is not None

    async def _read(self, index: int, chunk: GenerationChunk) -> list[ChoiceDelta]:
        reader = self._readers[index]
        before = reader.completion_tokens
        read = reader.read(chunk) if _is_short(chunk) else await self._in_thread(partial(reader.read, chunk))
        self._made_tokens += reader.completion_tokens - before
        self._unended -= chunk.finish_reason is not None
        return read

    async def _choice_events(self, chunks: _Chunks) -> AsyncIterator[Chunk]:
        form, opened = self._form, set[int]()
        messages = [form.message_pieces(reader.message) for reader in self._readers]
        async for index, chunk in chunks:
            reader = self._readers[index]
            if form.chat and index not in opened:
                yield form.role_event(index, reader.choice.request.prompt_ids)
            opened.add(index)
            read = await self._read(index, chunk)
            if (message := messages[index]) is not None:
                for event in await self._message_events(index, message, read, reader.finish_reason):
                    yield event
                continue
            for delta in read:
                small, made = len(delta.tokens) < _MANY_TOKENS, form.delta_event
                yield made(index, delta) if small else await self._in_thread(partial(made, index, delta))
            if reader.finish_reason is not None:
                yield form.last_event(index, reader.finish_reason, self._extension(metrics=False))

    async def _message_events(
        self, index: int, message: MessagePieces, read: Sequence[ChoiceDelta], reason: FinishReason | None
    ) -> list[Chunk]:
        form, events = self._form, list[Chunk]()
        for delta in read:
            tell = partial(form.delta_events, index, message, delta)
            small = message.held_tokens + len(delta.tokens) < _MANY_TOKENS
            events += tell() if small else await self._in_thread(tell)
        if reason is None:
            return events
        end = partial(form.end_events, index, message)
        events += end() if message.held_tokens < _MANY_TOKENS else await self._in_thread(end)
        return [*events, form.last_event(index, reason, self._extension(metrics=False), called=message.called)]

    async def _event(self, content: Chunk | ErrorBody) -> bytes:
        """One event, or as many as the answer's API has for a chunk."""
        writer = self._form.writer
        if writer is not None:
            chunk = cast("ChatCompletionChunk", content)
            if self._form.body.alternatives is None or not (_is_long(chunk) or not chunk["choices"]):
                return b"".join(writer.events(chunk))
            return cast("bytes", await self._in_thread(lambda: b"".join(writer.events(chunk))))
        data = await self._in_thread(partial(_written, content)) if _is_long(content) else _written(content)
        return b"data: %b\n\n" % data

    def _reasons(self) -> list[FinishReason]:
        reasons = [reader.finish_reason for reader in self._readers if reader.finish_reason is not None]
        if len(reasons) < len(self._readers):
            unfinished = [reader.choice.request.generation for reader in self._readers if reader.finish_reason is None]
            raise GenerationFailedError(f"{', '.join(unfinished)} ended without a finish reason")
        return reasons

    def _prompt_tokens(self) -> int:
        requests = (reader.choice.request for reader in self._readers if reader.choice.first_of_prompt)
        return sum(len(request.prompt_ids) for request in requests)

    def _completion_tokens(self) -> int:
        return sum(reader.completion_tokens for reader in self._readers)

    def _facts(self) -> dict[str, object]:
        readers = self._readers
        return {
            "prompt_tokens": self._prompt_tokens(),
            "completion_tokens": self._completion_tokens(),
            "finish_reasons": [reader.finish_reason for reader in readers],
            "choices": len(readers),
            "stream": self._form.body.stream,
        }


class DocumentResponse(Response):
    """A JSON document kept in parts: joining them would hold it twice."""

    media_type = "application/json"

    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__(headers={"content-length": str(sum(map(len, parts)))})
        self._parts = parts

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for parts in batched(self._parts, _PART_BYTES):
            await send({"type": "http.response.body", "body": b"".join(parts), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def batched(parts: Iterable[bytes], least_bytes: int) -> Iterator[list[bytes]]:
    """Join neighbouring parts up to ``least_bytes``; the last batch may be smaller."""
    batch, size = list[bytes](), 0
    for part in parts:
        batch.append(part)
        size += len(part)
        if size >= least_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _written(content: Chunk | ErrorBody) -> bytes:
    """Compact JSON: text events, which are most, by pydantic's encoder, others by Python's.

    Python's encoder is set up anew per document, which costs more than a token's event. pydantic's is not, but writes
    1e-05 as 1e-5; text events contain no small fractions.
    """
    return _encode_text(content) if _is_text(content) else encode(content).encode()


def _is_short(chunk: GenerationChunk) -> bool:
    """Whether it lacks a long prompt's log-probabilities."""
    return len(chunk.prompt_logprobs) < _MANY_TOKENS


def _is_long(content: Mapping[str, object]) -> bool:
    """Whether an event has log-probabilities of many tokens."""
    match content:
        case {"choices": [{"logprobs": {**lists}}]}:
            return any(isinstance(each, list) and len(each) >= _MANY_TOKENS for each in lists.values())
    return False


def _is_text(content: Mapping[str, object]) -> bool:
    """Whether an event has text only: no log-probabilities, no usage, no error."""
    match content:
        case {"choices": [{"logprobs": None}]}:
            return content.get("usage") is None
    return False


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
