"""vLLM's ``/tokenize`` and ``/detokenize``, and Anthropic's ``count_tokens``, over HTTP, off the event loop."""

from collections.abc import Callable, Sequence
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response
from transformers import PreTrainedTokenizerBase

from serve_app.api.gate import account_of, bodies_account, count_request, tenant_of
from serve_app.api.http.body import json_body
from serve_app.api.http.response import DocumentResponse
from serve_app.api.http.turns import RequestThreads
from serve_app.api.messages.counting import count_tokens
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.openai.tokenizing import detokenize, tokenize
from serve_app.api.peer import peer_address
from serve_app.api.service import RequestLimits, Service

_Answer = Callable[[bytes, PreTrainedTokenizerBase, RequestLimits, IgnoredFields], Sequence[bytes]]


def tokenizing(service: Service, threads: RequestThreads) -> APIRouter:
    """Return the routes. Unlike vLLM's they need a key if there are keys, as they take CPU time."""
    api = APIRouter(redirect_slashes=False)

    async def answered(request: Request, answer: _Answer) -> Response:
        tenant = tenant_of(service.gate, request.headers)
        if tenant is not None:
            request.state.record.facts["key"] = tenant.name
        await count_request(service.gate, tenant)
        settings = service.settings
        address = peer_address(request.scope, settings.http.trusted_proxies)
        account = account_of(tenant, address)
        async with json_body(request, settings, account, bodies_account(tenant, address)) as content:
            ignored = IgnoredFields.of(service.limits)
            work = partial(answer, content, service.tokenizer, service.limits, ignored)
            parts = await threads.run(account, work)
            request.state.record.headers |= ignored.headers
            return DocumentResponse(parts)

    @api.post("/tokenize")
    @api.post("/v1/tokenize")
    async def tokenize_(request: Request) -> Response:
        return await answered(request, tokenize)

    @api.post("/detokenize")
    @api.post("/v1/detokenize")
    async def detokenize_(request: Request) -> Response:
        return await answered(request, detokenize)

    @api.post("/v1/messages/count_tokens")
    async def count_tokens_(request: Request) -> Response:
        return await answered(request, count_tokens)

    return api
