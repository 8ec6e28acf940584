import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from openai.types import Model
from prometheus_client import CONTENT_TYPE_LATEST

from outrider.config.reading import parse_config
from serve_app.api.http.routes import make_api
from serve_app.api.service import ServiceSettings
from tests.unit.serve_app.api.asking import COMPLETION, JSON, ask, error_of, post, within
from tests.unit.serve_app.api.text_service import MODEL, SETTINGS, TextService


def test_models_are_listed_and_described() -> None:
    listed = ask(TextService(), "GET", "/v1/models").json()
    (card,) = listed["data"]
    assert listed["object"] == "list"
    assert Model.model_validate(card).id == MODEL
    assert card["max_model_len"] == 256
    speeds = {"best_effort": None, "speed_2": 2.0, "speed_4": 4.0, "speed_6": 6.0, "speed_8": 8.0}
    assert card["outrider"]["slo_classes"] == speeds
    assert next(iter(card["outrider"]["slo_classes"])) == "best_effort", "which requests have that name none"
    assert ask(TextService(), "GET", f"/v1/models/{MODEL}").json()["id"] == MODEL
    unknown = ask(TextService(), "GET", "/v1/models/org/other")
    assert unknown.status_code == 404
    assert error_of(unknown)["message"] == "model needs one of: smollm2; found 'org/other'"


def test_health_is_the_process_and_ready_is_the_verifier() -> None:
    lost = TextService(is_ready=False)
    assert ask(lost, "GET", "/health").status_code == 200
    assert ask(TextService(), "GET", "/ready").json() == {"ready": True, "verifier": "answers"}
    not_ready = ask(lost, "GET", "/ready")
    assert (not_ready.status_code, not_ready.json()) == (503, {"ready": False, "verifier": "does not answer"})


@pytest.mark.parametrize("path", ["/v1", "/v1/completions/", "/documents", "/v1/chat/completions/../x", "/%00%ff"])
def test_unknown_paths_are_404_in_openais_form(path: str) -> None:
    response = ask(TextService(), "GET", path)
    assert (response.status_code, error_of(response)["code"]) == (404, "unknown_url")
    assert "GET /openapi.json lists them all" in error_of(response)["message"]


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/v1/responses/resp_1", "responses are not kept; send the whole input to POST /v1/responses"),
        ("/v1/responses/resp_1/cancel", "responses are not kept; send the whole input to POST /v1/responses"),
        ("/v1/embeddings", "this service generates text only; it has no embeddings"),
    ],
)
def test_apis_that_are_not_there_have_something_in_their_place(path: str, advice: str) -> None:
    for method in ("GET", "POST"):
        response = ask(TextService(), method, path, **({} if method == "GET" else {"json": {}}))
        assert (response.status_code, error_of(response)["code"]) == (404, "unknown_url")
        assert error_of(response)["message"] == f"needs a URL of this API, found {method} {path}; {advice}"


def test_status_and_metrics_are_the_services() -> None:
    service = TextService()
    post(service, "/v1/completions", COMPLETION)
    assert ask(service, "GET", "/status").json() == {
        "model": MODEL,
        "drafters": [],
        "coordinators": [],
        "gateways": [],
    }
    metrics = ask(service, "GET", "/metrics")
    assert (metrics.text, metrics.headers["content-type"]) == ("requests_total 1.0\n", CONTENT_TYPE_LATEST)


@pytest.mark.parametrize("path", ["/health", "/ready", "/status", "/metrics", "/v1/models", f"/v1/models/{MODEL}"])
def test_what_can_be_read_has_a_head(path: str) -> None:
    whole, head = ask(TextService(), "GET", path), ask(TextService(), "HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    refused = ask(TextService(), "DELETE", path)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def test_wrong_methods_are_405_and_say_which_is_right() -> None:
    response = ask(TextService(), "GET", "/v1/completions")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert error_of(response)["message"] == "needs the method POST for this URL, found GET /v1/completions"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_other_content_than_json_is_415(content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = ask(TextService(), "POST", "/v1/completions", content=json.dumps(COMPLETION), headers=headers)
    assert response.status_code == 415
    assert error_of(response)["message"] == f"needs Content-Type: application/json, found {content_type or 'none'}"


def test_the_content_type_may_have_parameters_and_capitals() -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    response = ask(TextService(), "POST", "/v1/completions", content=json.dumps(COMPLETION), headers=headers)
    assert response.status_code == 200


def test_a_body_has_a_longest_time() -> None:
    service = TextService(settings=replace(SETTINGS, body_deadline_s=0.05, max_requests=1))

    async def asked() -> None:
        async def body() -> AsyncIterator[bytes]:
            yield b'{"model": '
            await asyncio.Event().wait()

        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(make_api(service)), base_url="http://outrider"
        ) as client:
            for _ in range(3):  # its place is free again
                refused = await client.post("/v1/completions", content=body(), headers=JSON)
                assert (refused.status_code, error_of(refused)["code"]) == (408, "request_timeout")
                assert "needs the body within 0.05 s, found 10 bytes then" in error_of(refused)["message"]

    within(asked())


def test_a_body_has_a_largest_size() -> None:
    padding = SETTINGS.max_body_bytes - len(json.dumps(COMPLETION))
    for extra, status in ((0, 200), (1, 413)):
        content = json.dumps(COMPLETION) + " " * (padding + extra)
        assert ask(TextService(), "POST", "/v1/completions", content=content, headers=JSON).status_code == status


@pytest.mark.parametrize(
    ("given_id", "returned"),
    [
        (b"abc-123 {x}", "abc-123 {x}"),
        (b"  two words\t", "two words"),
        (b"caf\xc3\xa9\x7f!", "caf!"),
        (b"i" * 500, "i" * 128),
    ],
)
def test_a_request_id_is_returned_in_printable_form(given_id: bytes, returned: str) -> None:
    headers: list[tuple[bytes, bytes]] = [(b"x-request-id", given_id)]
    for path in ("/health", "/nowhere"):
        assert ask(TextService(), "GET", path, headers=headers).headers.get_list("x-request-id") == [returned]


def test_a_request_id_reaches_the_coordinator() -> None:
    service = TextService()
    post(service, "/v1/completions", COMPLETION | {"n": 2}, **{"x-request-id": "mine"})
    assert [request.request_id for request in service.requests] == ["mine", "mine"]


def test_a_request_without_an_id_gets_one() -> None:
    ids = {
        ask(TextService(), "GET", "/health", headers=headers).headers["x-request-id"]
        for headers in ({}, {}, {"x-request-id": "\t"})
    }
    assert len(ids) == 3
    assert all(len(request_id) == 32 for request_id in ids)


def test_behind_a_server_that_returns_the_id_it_is_not_returned_twice() -> None:
    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(make_api(TextService(), returns_request_id=False))
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
            return await client.get("/health")

    assert "x-request-id" not in within(once()).headers


def test_settings_are_taken_from_the_configuration() -> None:
    config = parse_config(
        "model: {served_name: mine}\nlimits: {max_body_mib: 2, first_chunk_deadline_s: 700.0}", "test"
    )
    taken = ServiceSettings.from_config(config)
    assert (taken.model.public_name, taken.model.target, taken.k_max) == (
        "mine",
        config.model.target,
        config.speculation.k_max,
    )
    assert (taken.max_body_bytes, taken.next_chunk_deadline_s) == (2 * 2**20, 700.0)
    assert taken.slo_classes == config.slo.slo_classes
