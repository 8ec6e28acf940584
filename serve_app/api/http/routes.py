"""The HTTP API as an ASGI application over a ``Service``: its read-only routes, and those that make responses."""

import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from transformers import PreTrainedTokenizerBase

from outrider import __version__
from outrider.contracts.requests import GenerationRequest, Grammar
from outrider.tenants.keys import Tenant
from outrider.text.tokens import TokenTable, backend_of
from serve_app.api.api_forms import CHATS, COMPLETIONS, AnswerFacts, ApiForm, ReadRequest, named_by
from serve_app.api.gate import (
    account_of,
    asked_tokens,
    bodies_account,
    check_allowed,
    count_request,
    let_in,
    limits_of,
    rate_headers,
    rates_left,
    tenant_of,
)
from serve_app.api.gateways.probes import probes
from serve_app.api.http.body import json_body
from serve_app.api.http.bounded import Bounded
from serve_app.api.http.cached_pages import CachedPages
from serve_app.api.http.cors import allow_cors
from serve_app.api.http.described import docs_routes
from serve_app.api.http.edge import Edge, error_response
from serve_app.api.http.hosts import Hosts
from serve_app.api.http.response import GenerationResponse
from serve_app.api.http.tokenizing import tokenizing
from serve_app.api.http.turns import LoopTurns, RequestThreads
from serve_app.api.http.unknown import unknown_path
from serve_app.api.http_errors import (
    KeyRefusedError,
    MethodError,
    OverQuotaError,
    UnknownModelError,
    answer_for,
)
from serve_app.api.messages.models import VERSION_HEADER, model_info, model_info_list
from serve_app.api.messages.reading import MESSAGES
from serve_app.api.openai.bodies import ChatBody
from serve_app.api.openai.choices import ResponseIdentity, to_choices
from serve_app.api.openai.fields.ignored import IgnoredFields
from serve_app.api.openai.fields.lengths import length_headers
from serve_app.api.openai.prompts import Prompt, read_prompts
from serve_app.api.openai.reasoning.message import MessageForm
from serve_app.api.openai.reasoning.request import message_form
from serve_app.api.openai.structured import RequestedGrammar, read_grammar
from serve_app.api.openai.writing.response_form import ResponseForm
from serve_app.api.openai.writing.usage import model_card
from serve_app.api.peer import peer_address
from serve_app.api.responses.form import RESPONSES
from serve_app.api.service import Pass, RequestLimits, Service
from serve_app.api.tracing import RequestTraces, carried
from serve_app.api.tracing import asked as traced
from serve_app.service_answers import Health, ModelList, Version

API_FORMS: Sequence[ApiForm] = (CHATS, COMPLETIONS, RESPONSES, MESSAGES)
_READ = ["GET", "HEAD"]


def make_api(service: Service, *, returns_request_id: bool = True, traces: RequestTraces | None = None) -> FastAPI:
    """Build the ASGI application.

    ``returns_request_id``: whether to set ``X-Request-Id``, not behind a server that does; ``traces`` None: of none.
    """
    api = FastAPI(title="Outrider", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    api.add_middleware(Bounded, most=service.settings.max_requests)
    api.add_middleware(Hosts, allowed=lambda: service.settings.http.answers_to)
    error_bodies = {form.path: form.error_body for form in API_FORMS}
    api.add_middleware(Edge, returns_request_id=returns_request_id, error_bodies=error_bodies, traces=traces)
    allow_cors(api, lambda: service.settings.http.cors_origins)
    table, threads, turns = TokenTable(backend_of(service.tokenizer)), RequestThreads(), LoopTurns()

    @api.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        record = request.state.record
        if error.status_code != 405:
            return error_response(answer_for(unknown_path(request.method, request.url.path)), record)
        where = f"{request.method} {request.url.path:.200}"
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        answer = answer_for(MethodError(f"needs the method {allowed} for this URL, found {where}"))
        response = error_response(answer, record)
        response.headers["Allow"] = allowed
        return response

    api.include_router(_reads(service))
    api.include_router(tokenizing(service, threads))
    api.include_router(docs_routes(service))

    for form in API_FORMS:
        api.add_api_route(form.path, _route(partial(_respond, service, table, threads, turns, form)), methods=["POST"])
    return api


def _route(respond: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint, whose parameters are read by the framework: a ``partial`` has more than it may fill."""

    async def answered(request: Request) -> Response:
        return await respond(request)

    return answered


def _reads(service: Service) -> APIRouter:
    api = APIRouter(redirect_slashes=False)
    created_s = int(time.time())

    async def alive() -> Response:
        return JSONResponse(Health(status="ok"))

    looked = CachedPages(service)
    api.include_router(probes(service, alive, looked.ready))

    @api.api_route("/status", methods=_READ)
    async def status(request: Request) -> Response:
        return await looked.status(has_key=_may_read(service, request))

    @api.api_route("/metrics", methods=_READ)
    async def metrics(request: Request) -> Response:
        _may_read(service, request)
        return Response(await service.metrics(), headers={"content-type": CONTENT_TYPE_LATEST})

    @api.api_route("/version", methods=_READ)
    async def version() -> Response:
        return JSONResponse(Version(version=__version__))

    @api.api_route("/v1/models", methods=_READ)
    async def models(request: Request) -> Response:
        tenant_of(service.gate, request.headers)
        card = model_card(service.limits, created_s)
        if VERSION_HEADER in request.headers:
            return JSONResponse(model_info_list(card))
        return JSONResponse(ModelList(object="list", data=[card]))

    @api.api_route("/v1/models/{model:path}", methods=_READ)
    async def model(request: Request, model: str) -> Response:
        tenant_of(service.gate, request.headers)
        card = model_card(service.limits, created_s)
        if model != card["id"]:
            raise UnknownModelError("model", f"model needs one of: {card['id']}; found {model!r}")
        return JSONResponse(model_info(card) if VERSION_HEADER in request.headers else card)

    return api


def _may_read(service: Service, request: Request) -> bool:
    """Return whether the reader may see everything: it has a key, or there are no keys."""
    try:
        tenant_of(service.gate, request.headers)
    except KeyRefusedError:
        if service.settings.reads_need_key:
            raise
        return False
    return True


async def _respond(
    service: Service,
    table: TokenTable,
    threads: RequestThreads,
    turns: LoopTurns,
    form: ApiForm,
    request: Request,
) -> Response:
    """Read and check a request; the returned response makes the generations when it is sent."""
    tenant, record = tenant_of(service.gate, request.headers), request.state.record
    if tenant is not None:
        record.facts["key"] = tenant.name
    settings, everybodys = service.settings, service.limits
    address = peer_address(request.scope, settings.http.trusted_proxies)
    limits = replace(limits_of(tenant, everybodys), account=account_of(tenant, address))
    await turns.next(limits.account)
    try:
        await count_request(service.gate, tenant)
    except OverQuotaError:
        record.headers |= rate_headers(await rates_left(service.gate, tenant))
        raise
    async with json_body(request, settings, limits.account, bodies_account(tenant, address)) as content:
        ignored = IgnoredFields.of(limits)
        read = partial(_read, content, form, service.tokenizer, tenant, limits, everybodys, ignored)
        await turns.next(limits.account)
        since_s = time.monotonic()
        asked, prompts, asked_grammar, message = await threads.run(limits.account, read)
        service.first_token_phase("read", time.monotonic() - since_s)
        record.headers |= ignored.headers
    await turns.next(limits.account)
    identity = ResponseIdentity(f"{form.id_prefix}{uuid.uuid4().hex}", record.request_id, secrets.randbits(64))
    with named_by(asked.own_field):
        grammar = None if asked_grammar is None else await _validated(service, asked_grammar, limits)
        choices = to_choices(asked.body, prompts, limits, identity, headers=request.headers, grammar=grammar)
    record.headers |= length_headers(asked.body, [choice.request for choice in choices])
    if (trace := record.trace) is not None:
        trace.facts |= traced(
            choices, chat=isinstance(asked.body, ChatBody), name=identity.name, model=limits.model_name
        )
        choices = carried(choices, trace)
    prompt_tokens = sum(len(prompt.token_ids) for prompt in prompts)
    shown = identity.name if asked.body.request_id is None else f"{form.id_prefix}{asked.body.request_id}"
    facts = AnswerFacts(shown, limits.model_name, int(time.time()), prompt_tokens, limits.fingerprint)
    passed = await _admitted(service, tenant, [choice.request for choice in choices], prompt_tokens, request)
    in_thread = partial(threads.run, limits.account)
    writer = None if asked.writer is None else asked.writer(facts)
    written = ResponseForm(shown, facts.model, facts.created_s, table, asked.body, message, facts.fingerprint, writer)
    return GenerationResponse(service, settings, choices, written, passed, in_thread, limits)


def _read(
    content: bytes,
    form: ApiForm,
    tokenizer: PreTrainedTokenizerBase,
    tenant: Tenant | None,
    limits: RequestLimits,
    everybodys: RequestLimits,
    ignored: IgnoredFields,
) -> tuple[ReadRequest, list[Prompt], RequestedGrammar | None, MessageForm]:
    """Parse a body, tokenise its prompts, read its grammar and tools; call it in a thread, as each may take long."""
    asked = form.read(content, limits, ignored)
    body = asked.body
    with named_by(asked.own_field):
        check_allowed(body.outrider, tenant, limits, everybodys)
        prompts = read_prompts(body, tokenizer, limits)
        grammar = read_grammar(body, limits)
        in_form = grammar is not None and grammar.holds_all
        message = message_form(body, prompts[0].text, limits, in_form=in_form)
        return asked, prompts, grammar, message


async def _admitted(
    service: Service, tenant: Tenant | None, requests: Sequence[GenerationRequest], prompt_tokens: int, request: Request
) -> Pass:
    """Count a request against its key, and tell what is left. Awaits nothing behind ``let_in``."""
    rates, headers = await rates_left(service.gate, tenant), request.state.record.headers
    headers |= rate_headers(rates)
    passed = await let_in(service.gate, tenant, requests, prompt_tokens)
    headers |= rate_headers(rates, asked_tokens(requests, prompt_tokens))
    return passed


async def _validated(service: Service, asked_grammar: RequestedGrammar, limits: RequestLimits) -> Grammar:
    max_compile_s = limits.structured.max_compile_s
    return asked_grammar.validated(await service.grammars.validate(asked_grammar.source, max_compile_s, limits.account))
