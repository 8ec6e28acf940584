"""The HTTP API as an ASGI application over a ``Service``: routes, and how a request is read. Knows no Ray."""

import asyncio
import secrets
import time
import uuid

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from serve_app.errors import (
    BodyTooLargeError,
    MediaTypeError,
    MethodError,
    UnknownModelError,
    UnknownPathError,
    answer_for,
)
from serve_app.http_edge import Edge, error_response
from serve_app.http_generation import GenerationResponse
from serve_app.openai_api import ChatBody, CompletionBody, parse_body
from serve_app.openai_generation import prompt_tokens, to_generation
from serve_app.openai_responses import ResponseForm, model_card
from serve_app.service import Service


def make_api(service: Service, *, returns_request_id: bool = True) -> FastAPI:
    """The API as an ASGI application.

    Args:
        service: what makes the responses.
        returns_request_id: whether to set ``X-Request-Id`` on responses; not behind a server that does.
    """
    api = FastAPI(title="Outrider", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    api.add_middleware(Edge, returns_request_id=returns_request_id)
    card = model_card(service.limits, created_s=int(time.time()))

    @api.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        where = f"{request.method} {request.url.path:.200}"
        if error.status_code != 405:
            return error_response(answer_for(UnknownPathError(f"needs a URL of this API, found {where}")))
        allowed = (error.headers or {}).get("Allow", "")
        response = error_response(answer_for(MethodError(f"needs the method {allowed} for this URL, found {where}")))
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
    return GenerationResponse(service, generation, form, stream=body.stream)


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
