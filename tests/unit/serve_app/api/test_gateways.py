"""What gateways, endpoint pickers and probes ask: read as they read it."""

import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from outrider.contracts.errors import BusyError, GenerationFailedError, NotAdmittedError
from outrider.contracts.verifying import KvUsage
from serve_app.api.gateways.engine_metrics import engine_page, fullest
from serve_app.api.http_errors import DROPPED_HEADER
from tests.unit.serve_app.api.asking import COMPLETION, ask, post
from tests.unit.serve_app.api.test_http_keys import CountingGate
from tests.unit.serve_app.api.text_service import MODEL, TextService

EMPTY = KvUsage(16, total_blocks=200, used_blocks=0, cached_blocks=0, generations=0, evictions=0)
PAGE = engine_page('a "model"\\', waiting=2, running=3, kv_usage=0.25).decode()


@pytest.mark.parametrize("path", ["/health", "/healthz", "/livez", "/v1/health", "/ping"])
def test_liveness_under_every_name(path: str) -> None:
    service = TextService(is_ready=False, gate=CountingGate())
    assert ask(service, "GET", path).json() == {"status": "ok"}
    assert ask(service, "HEAD", path).status_code == 200


def test_ping_may_be_posted_and_other_probes_are_read_only() -> None:
    service = TextService(is_ready=False, gate=CountingGate())
    for content in (b"", b"{}", b"no JSON" * 1000):
        assert ask(service, "POST", "/ping", content=content).json() == {"status": "ok"}
    for path in ("/health", "/healthz", "/livez", "/v1/health", "/ready", "/readyz", "/load"):
        refused = ask(service, "POST", path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/ready", "/readyz"])
def test_readiness_under_every_name(path: str) -> None:
    for is_ready, status in ((True, 200), (False, 503)):
        assert ask(TextService(is_ready=is_ready, gate=CountingGate()), "GET", path).status_code == status


def test_load_is_vllms() -> None:
    assert ask(TextService(load=3), "GET", "/load").json() == {"server_load": 3}


@pytest.mark.parametrize(("path", "body"), [("tokenize", {"prompt": "a"}), ("detokenize", {"tokens": [1]})])
def test_tokenizing_under_v1(path: str, body: dict[str, object]) -> None:
    assert post(TextService(), f"/v1/{path}", body).json() == post(TextService(), f"/{path}", body).json()
    assert post(TextService(gate=CountingGate()), f"/v1/{path}", body).status_code == 401


def picker(page: str, name: str) -> float:
    """As llm-d and gateway-api-inference-extension read it: the family by its whole name, its newest sample."""
    (family,) = (family for family in text_string_to_metric_families(page) if family.name == name)
    assert family.type == "gauge"
    return [sample.value for sample in family.samples][-1]


def router(page: str) -> dict[str, float]:
    """As production-stack's router reads it: all samples of all families, by the sample's name."""
    names = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in names
    }


def test_pickers_and_routers_read_the_page() -> None:
    assert picker(PAGE, "vllm:num_requests_waiting") == 2.0
    assert picker(PAGE, "vllm:num_requests_running") == 3.0
    assert picker(PAGE, "vllm:kv_cache_usage_perc") == 0.25
    assert router(PAGE) == {
        "vllm:num_requests_running": 3.0,
        "vllm:num_requests_waiting": 2.0,
        "vllm:kv_cache_usage_perc": 0.25,
    }
    samples = [sample for family in text_string_to_metric_families(PAGE) for sample in family.samples]
    assert {(*sample.labels.items(),) for sample in samples} == {(("model_name", 'a "model"\\'),)}
    assert re.search(r"^# TYPE vllm:num_requests_waiting gauge$", PAGE, re.MULTILINE)


def test_the_fullest_verifier_counts_and_an_unknown_one_does_not() -> None:
    assert fullest([EMPTY, None, replace(EMPTY, used_blocks=50)]) == 0.25
    assert fullest([None]) is fullest([replace(EMPTY, total_blocks=0)]) is None
    assert "kv_cache" not in engine_page(MODEL, waiting=0, running=0, kv_usage=None).decode()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BusyError("full"), "rejected-saturated"),
        (NotAdmittedError("no place", 3), "rejected-saturated"),
        (NotAdmittedError("no place", 3, waited=True), "rejected-ttl-expired"),
        (GenerationFailedError("lost"), "rejected-no-endpoints"),
        (ValueError("a fault"), None),
    ],
)
def test_refusals_say_why_as_llmds_router_does(error: Exception, reason: str | None) -> None:
    answer = post(TextService(trouble_at=0, error=error), "/v1/completions", COMPLETION)
    assert answer.headers.get(DROPPED_HEADER) == reason


def test_a_suffix_is_refused_by_name() -> None:
    refused = post(TextService(), "/v1/completions", COMPLETION | {"suffix": "end"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "suffix")
