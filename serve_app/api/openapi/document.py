"""The OpenAPI document of a service: every URL, its request, its answers and errors."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from outrider import __version__
from serve_app.api.gateways.probes import LIVE, PING, READY
from serve_app.api.http_errors import DROPPED_HEADER, ERROR_KINDS
from serve_app.api.messages.answers import MESSAGE_EVENTS
from serve_app.api.messages.models import VERSION_HEADER
from serve_app.api.openai.fields.ignored import IGNORED_HEADER
from serve_app.api.openai.promises import (
    FAIRNESS_HEADER,
    FIRST_TOKEN_HEADER,
    LONGEST_MS,
    NEWER_NAMES,
    OBJECTIVE_HEADER,
    TOKEN_HEADER,
)
from serve_app.api.openapi.answers import answer_schemas
from serve_app.api.openapi.requests import REF, Schema, request_schemas
from serve_app.api.responses.answers import RESPONSE_EVENTS
from serve_app.api.service import RequestLimits

_ABOUT = (
    "OpenAI's API over distributed speculative decoding. A field is honoured exactly or refused by name; one that "
    "nobody knows is ignored, and named in X-Outrider-Ignored, unless it resembles a known one. Every response has "
    "X-Request-Id, the client's own if it sends one; every GET has a HEAD. A schema is as "
    "strict as fields are by themselves: what depends on others, or on a prompt's tokens, is refused with a 400 that "
    "says so."
)
_STREAMED = (
    "Where `stream` is true: server-sent events, each `data: ` and a {answer}Chunk, or an ErrorBody, which ends it; "
    "comments (`: keep-alive`); and at the end `data: [DONE]`."
)
_NAMED = "Where `stream` is true: server-sent events, each `event: `, which `type` repeats, and `data: `; comments."
_JSON = "application/json"
_TEXT: Schema = {"type": "string"}
_ANY = (400, 421)  # of ``Host``
_BUSY = 429  # of any but the liveness probe
_MADE = (403, 404, 408, 413, 415, 500, 503, 504)
_READ_BODY = (404, 408, 413, 415, 500)
_CONTENT_TYPE_METRICS = "text/plain; version=1.0.0; charset=utf-8"


def openapi_document(limits: RequestLimits, *, keys: bool, reads_need_key: bool = False) -> dict[str, Any]:
    """Return the document as JSON. ``keys``: whether requests need one; ``reads_need_key``: so do /status, /metrics."""
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Outrider", "version": __version__, "description": _ABOUT},
        "paths": _generating(limits, keys=keys)
        | _counting(keys=keys)
        | _models_read(keys=keys)
        | _service_read(reads_need_key=reads_need_key),
        "components": {"schemas": request_schemas(limits) | answer_schemas()},
    }
    for path, methods in document["paths"].items():
        for operation in methods.values():
            known, more = operation["responses"], [*_ANY, *([_BUSY] if path not in LIVE else [])]
            operation["responses"] |= _errors(status for status in more if str(status) not in known)
            if path.startswith("/v1/messages"):
                for status, found in operation["responses"].items():
                    found["content"] |= {_JSON: {"schema": _ref("MessageFailure")}} if status >= "400" else {}
    if keys:
        document["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer"},
            "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return document


def _generating(limits: RequestLimits, *, keys: bool) -> Schema:
    def made(what: str, body: str, answer: str, events: Sequence[type] = ()) -> Schema:
        names = [kind.__name__ for kind in events]
        return {"post": _generation(what, body, answer, limits, keys=keys, events=names)}

    return {
        "/v1/chat/completions": made("chat", "ChatBody", "ChatCompletion"),
        "/v1/completions": made("completion", "CompletionBody", "Completion"),
        "/v1/responses": made("response", "ResponsesBody", "ModelResponse", RESPONSE_EVENTS),
        "/v1/messages": made("message", "MessagesBody", "MessageAnswer", MESSAGE_EVENTS),
    }


def _counting(*, keys: bool) -> Schema:
    def counted(summary: str, body: Schema, answer: str) -> Schema:
        return {"post": _operation(summary, answer, _READ_BODY, keys=keys) | _body(body)}

    tokenize = {"anyOf": [_ref("TokenizeTextBody"), _ref("TokenizeChatBody")]}
    tokenized = counted("The tokens of a text or a chat", tokenize, "Tokenized")
    detokenized = counted("The text of tokens", _ref("DetokenizeBody"), "Detokenized")
    count = counted("The number of a prompt's tokens", _ref("CountTokensBody"), "TokenCount")
    return {
        "/v1/messages/count_tokens": count,
        **{f"{before}/tokenize": deepcopy(tokenized) for before in ("", "/v1")},
        **{f"{before}/detokenize": deepcopy(detokenized) for before in ("", "/v1")},
    }


def _models_read(*, keys: bool) -> Schema:
    return {
        "/v1/models": {"get": _models("The served model, in a list", "ModelList", (), keys=keys)},
        "/v1/models/{model}": {"get": _model(keys=keys)},
    }


def _service_read(*, reads_need_key: bool) -> Schema:
    alive = "Whether the process answers"
    return {
        "/version": {"get": _operation("Outrider's version", "Version", ())},
        **{path: {method: _operation(alive, "Health", ()) for method in _methods(path)} for path in LIVE},
        **{path: {"get": _ready()} for path in READY},
        "/load": {"get": _operation("Responses under way at this ingress", "Load", ())},
        "/status": {"get": _operation("What the service is doing", "Status", (500, 503, 504), keys=reads_need_key)},
        "/metrics": {
            "get": _text("This ingress's metrics, for Prometheus", _CONTENT_TYPE_METRICS, keys=reads_need_key)
        },
        "/openapi.json": {"get": {"summary": "This document", "responses": {"200": _answer({"type": "object"})}}},
        "/docs": {"get": _text("This document, to be read", "text/html; charset=utf-8")},
    }


def _generation(
    what: str, body: str, answer: str, limits: RequestLimits, *, keys: bool, events: Sequence[str] = ()
) -> Schema:
    """``events``: schemas of a stream's, if they have names; otherwise they are chunks."""
    operation = _operation(f"Make a {what}", answer, _MADE, keys=keys) | _body(_ref(body))
    content = {"anyOf": [_ref(name) for name in events or (f"{answer}Chunk", "ErrorBody")]}
    piece: Schema = {"type": "string", "contentMediaType": _JSON, "contentSchema": content}
    event: Schema = {"type": "object", "required": ["data"]}
    if events:
        event = {"type": "object", "required": ["event", "data"], "properties": {"event": _TEXT, "data": piece}}
    else:
        event |= {"properties": {"data": {"anyOf": [{"const": "[DONE]"}, piece]}}}
    stream = {"schema": event}  # of each event, as is usual before OpenAPI 3.2
    operation["description"] = _NAMED if events else _STREAMED.format(answer=answer)
    operation["responses"]["200"]["content"]["text/event-stream"] = stream
    time: Schema = {"type": "number", "maximum": LONGEST_MS}
    first = time | {"minimum": limits.least_first_token_ms or 1e-3}
    operation["parameters"] = [
        *(
            _header(name, about, schema)
            for older, about, schema in (
                (FIRST_TOKEN_HEADER, "Milliseconds within which it is started, or refused.", first),
                (TOKEN_HEADER, "Milliseconds of a token, within what a class promises.", time | {"minimum": 1e-3}),
            )
            for name in (NEWER_NAMES[older], older)
        ),
        _header(OBJECTIVE_HEADER, "Stands for a class that the operator chose; unknown ones say nothing.", _TEXT),
        _header(FAIRNESS_HEADER, "Divides the share of the key, or of the address.", _TEXT | {"maxLength": 256}),
    ]
    operation["responses"]["200"]["headers"] = {
        IGNORED_HEADER: {"description": "Fields that nobody here knows, at most 16", "schema": _TEXT}
    }
    dropped = {"description": "Why it was not served, as llm-d's router says it", "schema": _TEXT}
    for status in ("429", "503"):
        operation["responses"].setdefault(status, _errors([int(status)])[status])
        operation["responses"][status] |= {"headers": {DROPPED_HEADER: dropped}}
    return operation


def _model(*, keys: bool) -> Schema:
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    operation = _models("The served model", "Model", (404,), keys=keys)
    return operation | {"parameters": [name, *operation["parameters"]]}


def _models(summary: str, answer: str, errors: Iterable[int], *, keys: bool) -> Schema:
    """An operation that answers in Anthropic's form, too."""
    operation = _operation(summary, answer, errors, keys=keys)
    operation["responses"]["200"] = _answer({"anyOf": [_ref(answer), _ref(answer.replace("Model", "ModelInfo"))]})
    version = _header(VERSION_HEADER, "The answer is in Anthropic's form.", _TEXT)
    return operation | {"parameters": [version]}


def _methods(probe: str) -> tuple[str, ...]:
    return ("get", "post") if probe == PING else ("get",)


def _ready() -> Schema:
    operation = _operation("Whether responses can be made now", "Ready", (500,))
    operation["responses"]["503"] = _answer(_ref("Ready"), "Not now")
    return operation


def _operation(summary: str, answer: str, errors: Iterable[int], *, keys: bool = False) -> Schema:
    return _secured(summary, {"200": _answer(_ref(answer))} | _errors(errors), keys=keys)


def _text(summary: str, media_type: str, *, keys: bool = False) -> Schema:
    content = {media_type: {"schema": {"type": "string"}}}
    return _secured(summary, {"200": {"description": "OK", "content": content}}, keys=keys)


def _secured(summary: str, responses: Schema, *, keys: bool) -> Schema:
    operation: Schema = {"summary": summary, "responses": responses}
    if keys:
        operation["security"] = [{"key": []}, {"api_key": []}]
        responses |= _errors([401])
    return operation


def _errors(statuses: Iterable[int]) -> Schema:
    return {str(status): _answer(_ref("ErrorBody"), _codes(status)) for status in statuses}


def _codes(status: int) -> str:
    codes = dict.fromkeys(kind.code for kind in ERROR_KINDS.values() if kind.status == status)
    return f"An error: {', '.join(codes)}"


def _answer(schema: Schema, description: str = "OK") -> Schema:
    return {"description": description, "content": {_JSON: {"schema": schema}}}


def _body(schema: Schema) -> Schema:
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": schema}}}}


def _header(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _ref(name: str) -> Schema:
    return {"$ref": f"{REF}{name}"}
