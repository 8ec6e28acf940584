"""The ingress: OpenAI's API over HTTP in front of the coordinators. Stateless; any number of replicas.

``make_api`` is pure HTTP over a ``Service`` and knows no Ray; ``Ingress`` is the Serve deployment around it.

A client that leaves cancels its response, streamed or not, whether the server cancels the request (Serve's proxy) or
only reports the disconnect (uvicorn): leaving closes the chunk iterator, which cancels the coordinator's generator.
"""

import asyncio
import json
import logging
import re
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from transformers import PreTrainedTokenizerBase

from outrider.config import Config
from outrider.errors import GenerationFailedError
from outrider.models.registry import context_tokens, load_tokenizer, resolve_folder
from outrider.models.target_folder import read_config
from outrider.models.token_map import token_map, usable_vocab_size
from outrider.types import GenerationChunk, GenerationRequest, RoundStats
from serve_app.errors import (
    BodyTooLargeError,
    MediaTypeError,
    MethodError,
    UnknownModelError,
    UnknownPathError,
    answer_for,
)
from serve_app.openai_api import (
    ChatBody,
    CompletionBody,
    RequestLimits,
    ResponseForm,
    model_card,
    parse_body,
    prompt_tokens,
    to_generation,
    usage_of,
)

_READY_DEADLINE_S = 5.0
_CLIENT_LEFT = 499  # as nginx and Serve log it; nobody receives it
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The ingress's piece of the configuration."""

    model_name: str
    target: str  # name or path, for its tokenizer
    max_context_tokens: int | None  # None: all the target was made for
    max_output_tokens: int
    k_max: int
    max_body_bytes: int = 4 * 2**20
    first_chunk_deadline_s: float = 120.0
    next_chunk_deadline_s: float = 60.0

    @classmethod
    def from_config(cls, config: Config) -> "ServiceSettings":
        """Take what concerns the ingress."""
        return cls(
            model_name=config.model.public_name,
            target=config.model.target,
            max_context_tokens=config.model.max_context_tokens,
            max_output_tokens=config.limits.max_output_tokens,
            k_max=config.speculation.k_max,
            max_body_bytes=config.limits.max_body_mib * 2**20,
            first_chunk_deadline_s=config.limits.first_chunk_deadline_s,
            next_chunk_deadline_s=config.limits.next_chunk_deadline_s,
        )


@dataclass(frozen=True, slots=True)
class ReadyReport:
    """Whether requests can be served; ``detail`` is shown to whoever asks."""

    ready: bool
    detail: dict[str, object]


class Service(Protocol):
    """What the HTTP layer needs: the contract of a coordinator, and the facts about the model."""

    @property
    def settings(self) -> ServiceSettings:
        """Deadlines and body limit."""
        ...

    @property
    def limits(self) -> RequestLimits:
        """What the model allows."""
        ...

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The target's."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Make a response; closing the generator cancels it."""
        ...

    async def ready(self) -> ReadyReport:
        """Ask whether responses can be made now."""
        ...


def make_api(service: Service) -> FastAPI:
    """The API as an ASGI application."""
    api = FastAPI(title="Outrider", docs_url=None, redoc_url=None, openapi_url=None)
    api.add_middleware(_Edge)
    card = model_card(service.limits, created_s=int(time.time()))

    @api.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> Response:
        where = f"{request.method} {request.url.path:.200}"
        if error.status_code == 405:
            answer = _error_response(MethodError(f"needs another method for this URL, found {where}"))
            answer.headers["Allow"] = (error.headers or {}).get("Allow", "")
            return answer
        return _error_response(UnknownPathError(f"needs a URL of this API, found {where}; see /v1/models"))

    @api.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @api.get("/ready")
    async def ready() -> Response:
        report = await service.ready()
        return JSONResponse({"ready": report.ready, **report.detail}, status_code=200 if report.ready else 503)

    @api.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [card]})

    @api.get("/v1/models/{model:path}")
    async def model(model: str) -> Response:
        if model != card["id"]:
            raise UnknownModelError("model", f"model needs one of: {card['id']}; found {model!r}")
        return JSONResponse(card)

    @api.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _respond(service, request, CompletionBody)

    @api.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await _respond(service, request, ChatBody)

    return api


async def _respond(service: Service, request: Request, kind: type[CompletionBody | ChatBody]) -> Response:
    """Read and check a request; the response it returns makes the generation when it is sent."""
    content = await _read_json_body(request, service.settings.max_body_bytes)
    body = parse_body(content, kind, service.limits)
    prompt_ids = await asyncio.to_thread(prompt_tokens, body, service.tokenizer, service.limits)
    chat = isinstance(body, ChatBody)
    name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
    generation = to_generation(
        body, prompt_ids, service.limits, generation=name, default_seed=secrets.randbits(64)
    )
    form = ResponseForm(
        id=name,
        model=service.limits.model_name,
        created_s=int(time.time()),
        chat=chat,
        usage_in_stream=body.stream_options.include_usage,
    )
    return _GenerationResponse(service, generation, form, stream=body.stream)


async def _read_json_body(request: Request, max_bytes: int) -> bytes:
    media_type = request.headers.get("content-type", "")
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise MediaTypeError(f"needs Content-Type: application/json, found {media_type or 'none'}")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > max_bytes:
            raise BodyTooLargeError(f"needs a body of at most {max_bytes} bytes, found more; shorten the prompt")
    return bytes(content)


class _GenerationResponse(Response):
    """Makes a response while sending it, as one JSON document or as server-sent events.

    Nothing is sent before the first chunk, so that an error until then is an HTTP error; a later one is an event of
    its own, after which the stream ends without ``[DONE]``.
    """

    def __init__(self, service: Service, request: GenerationRequest, form: ResponseForm, *, stream: bool) -> None:
        media_type = "text/event-stream" if stream else "application/json"
        super().__init__(media_type=media_type)
        self._service = service
        self._request = request
        self._form = form
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI's signature)
        work = asyncio.ensure_future(self._send_all(send))
        left = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            left.cancel()
            work.cancel()
            await asyncio.gather(work, left, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        settings = self._service.settings
        async with aclosing(self._service.generate(self._request)) as chunks:
            in_time = _with_deadlines(chunks, settings.first_chunk_deadline_s, settings.next_chunk_deadline_s)
            await (self._send_events if self._stream else self._send_document)(in_time, send)

    async def _send_document(self, chunks: AsyncIterator[GenerationChunk], send: Send) -> None:
        texts: list[str] = []
        tokens = 0
        async for chunk in chunks:
            texts.append(chunk.text)
            tokens += len(chunk.token_ids)
            if chunk.finish_reason is not None:
                document = self._form.whole("".join(texts), chunk.finish_reason, self._usage(tokens, chunk.stats))
                content = _json(document)
                await self._start(send, content_length=len(content))
                await send({"type": "http.response.body", "body": content})
                return
        raise _ended_early(self._request)

    async def _send_events(self, chunks: AsyncIterator[GenerationChunk], send: Send) -> None:
        async def event(content: dict[str, object] | None) -> None:
            if content is not None:
                body = b"data: " + _json(content) + b"\n\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})

        started, tokens = False, 0
        try:
            async for chunk in chunks:
                tokens += len(chunk.token_ids)
                if not started:
                    await self._start(send)
                    started = True
                    await event(self._form.first_event())
                if chunk.text:
                    await event(self._form.text_event(chunk.text))
                if chunk.finish_reason is not None:
                    await event(self._form.last_event(chunk.finish_reason))
                    await event(self._form.usage_event(self._usage(tokens, chunk.stats)))
                    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
                    return
            raise _ended_early(self._request)
        except Exception as error:
            if not started:
                raise
            await event(_told(error, self._request.generation).body)
            await send({"type": "http.response.body", "body": b""})

    async def _start(self, send: Send, *, content_length: int | None = None) -> None:
        headers = [(b"content-type", self.media_type.encode())]
        headers += [(b"cache-control", b"no-cache")] if content_length is None else []
        headers += [] if content_length is None else [(b"content-length", str(content_length).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    def _usage(self, tokens: int, stats: RoundStats | None) -> dict[str, object]:
        return usage_of(len(self._request.prompt_ids), tokens, stats or RoundStats())
