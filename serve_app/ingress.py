"""The ingress: OpenAI's API over HTTP in front of the coordinators. Stateless; any number of replicas.

``make_api`` is pure HTTP over a ``Service`` and knows no Ray; ``Ingress`` is the Serve deployment around it.

A client that leaves cancels its response, streamed or not, whether the server cancels the request (Serve's proxy) or
only reports the disconnect (uvicorn): leaving closes the chunk iterator, which cancels the coordinator's generator.
"""

import asyncio
import json
import logging
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
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
from outrider.text import backend_of
from outrider.types import GenerationChunk, GenerationRequest, RoundStats
from serve_app.errors import (
    BodyTooLargeError,
    ErrorAnswer,
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
_MAX_REQUEST_ID_CHARS = 128
_REQUEST_ID_CHARS = frozenset(map(chr, range(0x20, 0x7F)))
_EVENT_STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]

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


def make_api(service: Service, *, returns_request_id: bool = True) -> FastAPI:
    """The API as an ASGI application.

    Args:
        service: what makes the responses.
        returns_request_id: whether to set ``X-Request-Id`` on responses; not behind a server that does.
    """
    api = FastAPI(title="Outrider", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    api.add_middleware(_Edge, returns_request_id=returns_request_id)
    card = model_card(service.limits, created_s=int(time.time()))

    @api.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        where = f"{request.method} {request.url.path:.200}"
        if error.status_code != 405:
            return _error_response(answer_for(UnknownPathError(f"needs a URL of this API, found {where}")))
        allowed = (error.headers or {}).get("Allow", "")
        response = _error_response(answer_for(MethodError(f"needs the method {allowed} for this URL, found {where}")))
        response.headers["Allow"] = allowed
        return response

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
    generation = to_generation(body, prompt_ids, service.limits, generation=name, default_seed=secrets.randbits(64))
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
        super().__init__()
        self._service = service
        self._request = request
        self._form = form
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            await _send_event(send, _told(error, request_id).body)
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


def _told(error: Exception, request_id: str) -> ErrorAnswer:
    """The answer to an error; what the client did not cause is logged."""
    answer = answer_for(error)
    if answer.status >= 500:
        log.error("request %s failed", request_id, exc_info=error)
    return answer


class _Edge:
    """Outermost layer: gives each request its id, and every error an answer."""

    def __init__(self, app: ASGIApp, *, returns_request_id: bool) -> None:
        self._app = app
        self._returns_request_id = returns_request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get("x-request-id", ""))
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def tagged_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if self._returns_request_id:
                    MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, tagged_send)
        except ClientDisconnect:
            log.debug("request %s: the client left before it was read", request_id)
        except Exception as error:
            if started:
                raise
            await _error_response(_told(error, request_id))(scope, receive, tagged_send)


def _request_id(given: str) -> str:
    """The client's id, less what is no printable ASCII and what is too long; a new one if nothing is left."""
    printable = "".join(char for char in given if char in _REQUEST_ID_CHARS)
    return printable.strip()[:_MAX_REQUEST_ID_CHARS] or uuid.uuid4().hex


def _error_response(answer: ErrorAnswer) -> Response:
    return JSONResponse(answer.body, status_code=answer.status, headers=answer.headers)


class CoordinatorService:
    """The ``Service`` behind a Serve handle. Chunks are small: they travel by value, which saves a store access."""

    def __init__(
        self,
        coordinator: DeploymentHandle[Any],
        settings: ServiceSettings,
        limits: RequestLimits,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        self._coordinator = coordinator.options(_by_reference=False)
        self._streaming = coordinator.options(_by_reference=False, stream=True)
        self.settings = settings
        self.limits = limits
        self.tokenizer = tokenizer

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """See ``Service.generate``."""
        chunks: Any = self._streaming.generate.remote(request)  # a DeploymentResponseGenerator
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            chunks.cancel()

    async def ready(self) -> ReadyReport:
        """Ask a coordinator; one that does not answer is not ready."""
        try:
            detail = await asyncio.wait_for(self._coordinator.ready.remote(), _READY_DEADLINE_S)
        except (TimeoutError, RayError, RayServeException) as error:
            return ReadyReport(ready=False, detail={"reason": f"no coordinator answers: {type(error).__name__}"})
        return ReadyReport(ready=bool(detail["ready"]), detail=detail)


@serve.ingress()
class Ingress:
    """The Serve deployment class; ``serve_app.app`` sets its options."""

    async def __init__(self, coordinator: DeploymentHandle[Any], settings: ServiceSettings) -> None:  # type: ignore[misc]  # Serve awaits the constructor
        """Load the target's tokenizer.

        Raises:
            ModelUnavailableError: no such target.
            ParameterError: ``max_context_tokens`` exceeds the target's.
        """
        limits, tokenizer = await asyncio.to_thread(_load, settings)
        self._service = CoordinatorService(coordinator, settings, limits, tokenizer)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve once the constructor is done. Serve's HTTP server returns ``X-Request-Id`` itself."""
        return make_api(self._service, returns_request_id=False)


def _load(settings: ServiceSettings) -> tuple[RequestLimits, PreTrainedTokenizerBase]:
    """Everything about the target but its weights."""
    folder = resolve_folder(settings.target)
    tokenizer, config = load_tokenizer(settings.target), read_config(folder)
    backend = backend_of(tokenizer)
    backend.no_truncation()  # a saved tokenizer may truncate or pad by itself
    backend.no_padding()
    context = context_tokens(config, settings.max_context_tokens)
    limits = RequestLimits(
        model_name=settings.model_name,
        max_context_tokens=context,
        max_output_tokens=min(settings.max_output_tokens, context - 1),
        vocab_size=usable_vocab_size(token_map(tokenizer), config.vocab_size),
        k_max=settings.k_max,
        max_prompt_chars=context * max(map(len, backend.get_vocab())),  # more would fit only if most were dropped
    )
    return limits, tokenizer
