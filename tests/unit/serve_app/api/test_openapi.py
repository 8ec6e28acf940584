"""``/openapi.json`` and ``/docs``, and that the service does what they say; ``tests/cluster`` asks a real one."""

import json
import traceback
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import schemathesis

from outrider.contracts.sampling_defaults import SamplingDefaults
from serve_app.api.http.routes import make_api
from serve_app.api.http_errors import ERROR_KINDS
from serve_app.api.openapi.answers import answer_schemas
from serve_app.api.openapi.page import CONTENT_SECURITY_POLICY
from tests.unit.serve_app.api.asking import ask
from tests.unit.serve_app.api.declared import check_against
from tests.unit.serve_app.api.described import judge, operations
from tests.unit.serve_app.api.test_http_keys import GROUPS, CountingGate
from tests.unit.serve_app.api.text_service import LIMITS, SETTINGS, TextService

EXAMPLES = 12
PROBES = {"/healthz", "/livez", "/v1/health", "/ping", "/readyz", "/load", "/v1/tokenize", "/v1/detokenize"}
OURS = PROBES | {
    "/health",
    "/ready",
    "/status",
    "/metrics",
    "/version",
    "/openapi.json",
    "/docs",
    "/tokenize",
    "/detokenize",
}


def document(**fields: Any) -> dict[str, Any]:
    return dict(ask(TextService(**fields), "GET", "/openapi.json").json())


def test_every_route_is_described() -> None:
    """But the page's, which is for people."""
    routes: Any = make_api(TextService()).routes
    found = {route.path.replace(":path", "") for route in routes if hasattr(route, "path")}
    for included in (route for route in routes if hasattr(route, "original_router")):
        found |= {route.path.replace(":path", "") for route in included.original_router.routes}
    described = set(document()["paths"])
    assert OURS <= described <= found
    assert all(path == "/" or path.startswith("/page") for path in found - described), found - described


def test_every_error_has_its_status_somewhere() -> None:
    described = {
        int(status)
        for methods in document(gate=CountingGate())["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
    }
    assert {kind.status for kind in ERROR_KINDS.values()} - described == {405}, "no operation's"


def test_the_document_is_one_of_openapi() -> None:
    schemathesis.openapi.from_dict(document()).validate()
    for schema in document()["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_an_answer_may_have_fields_that_clients_do_not_know() -> None:
    assert all(schema.get("additionalProperties") is not False for schema in answer_schemas().values())


def test_it_says_what_this_service_takes() -> None:
    limits = replace(GROUPS, defaults=SamplingDefaults({"temperature": 0.25}))
    found = document(limits=limits, gate=CountingGate())
    schemas = found["components"]["schemas"]
    body = {"model": LIMITS.model_name, "messages": [{"role": "user", "content": "a", "name": "b"}], "stop": None}
    accepted: tuple[dict[str, Any], ...] = (
        {},
        {"tools": []},
        {"logit_bias": {"7": -100}},
        {"outrider": {"drafters": ["lab"], "lookup": True}},
    )
    for good in accepted:
        check_against(found, schemas["ChatBody"], body | good)
    for bad in (
        {"model": "other"},
        {"temperature": 3},
        {"stop_token_ids": [-1]},
        {"logit_bias": {"07": 1}},
        {"outrider": {"drafters": ["elsewhere"]}},
        {"outrider": {"window": LIMITS.k_max + 1}},
        {"messages": [{"role": "nobody", "content": "a"}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            check_against(found, schemas["ChatBody"], body | bad)
    assert schemas["ChatBody"]["properties"]["temperature"]["default"] == 0.25
    assert found["paths"]["/v1/models"]["get"]["security"] == [{"key": []}, {"api_key": []}]
    assert "401" in found["paths"]["/tokenize"]["post"]["responses"]
    assert "security" not in document()["paths"]["/v1/models"]["get"]


@pytest.mark.parametrize(("method", "path"), operations(document()))
def test_what_it_says_is_what_is_done(method: str, path: str) -> None:
    settings = replace(SETTINGS, max_body_bytes=2**20)  # more than any example has: a schema cannot tell of a 413
    schema = schemathesis.openapi.from_asgi("/openapi.json", make_api(TextService(settings=settings)))
    statuses = judge(schema, method, path, lambda case: case.call(), negative=False, examples=EXAMPLES, seed=1)
    assert 200 in statuses or "{model}" in path
    if "requestBody" in schema.raw_schema["paths"][path][method]:
        refused = judge(schema, method, path, lambda case: case.call(), negative=True, examples=EXAMPLES, seed=1)
        assert set(refused) <= {400, 404}


def test_a_service_that_does_otherwise_is_found_out() -> None:
    """An answer that lacks what the document has."""
    api = make_api(TextService())
    schema = schemathesis.openapi.from_asgi("/openapi.json", api)
    schema.raw_schema["components"]["schemas"]["Tokenized"]["required"].append("cost")
    changed = schemathesis.openapi.from_dict(schema.raw_schema)
    changed.app = api
    with pytest.raises(BaseExceptionGroup) as failed:
        judge(changed, "post", "/tokenize", lambda case: case.call(), negative=False, examples=EXAMPLES, seed=1)
    found = "".join(traceback.format_exception(failed.value))
    assert "JsonSchemaError" in found
    assert '"cost"' in found


def test_it_can_be_read_without_scripts() -> None:
    page = ask(TextService(), "GET", "/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY
    assert "<script" not in page.text
    assert "http://" not in page.text.replace("http://www.w3.org", "")
    for path in document()["paths"]:
        assert path in page.text
    assert json.dumps("slo_class") in page.text.replace("&quot;", '"')
