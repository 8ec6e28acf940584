"""vLLM's ``/tokenize`` and ``/detokenize`` over HTTP, off the event loop, few at a time."""

import asyncio
from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import Response
from transformers import PreTrainedTokenizerBase

from serve_app.api.gate import bodies_account, count_request, tenant_of
from serve_app.api.http.body import read_json_body
from serve_app.api.openai.tokenizing import detokenize, tokenize
from serve_app.api.peer import peer_address
from serve_app.api.service import RequestLimits, Service

_AT_ONCE = 2  # others wait: the threads are those that read prompts, too

_Answer = Callable[[bytes, PreTrainedTokenizerBase, RequestLimits], bytes]


def tokenizing(service: Service) -> APIRouter:
    """The routes. They need a key where there are keys, as they take a processor's time; vLLM's do not."""
    api, free = APIRouter(redirect_slashes=False), asyncio.Semaphore(_AT_ONCE)

    async def answered(request: Request, answer: _Answer) -> Response:
        tenant = tenant_of(service.gate, request.headers)
        if tenant is not None:
            request.state.record.facts["key"] = tenant.name
        await count_request(service.gate, tenant)
        settings = service.settings
        account = bodies_account(tenant, peer_address(request.scope, settings.trusted_proxies))
        content = await read_json_body(request, settings, account)
        async with free:
            told = await asyncio.to_thread(answer, content, service.tokenizer, service.limits)
        return Response(told, media_type="application/json")

    @api.post("/tokenize")
    async def tokenize_(request: Request) -> Response:
        return await answered(request, tokenize)

    @api.post("/detokenize")
    async def detokenize_(request: Request) -> Response:
        return await answered(request, detokenize)

    return api
