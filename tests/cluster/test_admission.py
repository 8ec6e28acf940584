"""Admission in a real service: what promises leave no room for is refused by name or lowered, and nothing is lost."""

import re
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.cluster.clusters import Clusters
from tests.cluster.few_places import FLOOD, NAME, PLACES, head, with_few_places
from tests.cluster.served import MODEL, PLAIN, Service, eventually

CLUSTER = NAME
CLIENTS, TOKENS = 48, 48
_TOLD_WITHIN_S = 60.0
_OK, _TOO_MANY = httpx.codes.OK, httpx.codes.TOO_MANY_REQUESTS


@pytest.fixture(scope="module")
def service(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Service:
    return clusters.get(CLUSTER, lambda: with_few_places(tmp_path_factory.mktemp("places")))


def ask(
    service: Service,
    slo_class: str | list[str],
    headers: Mapping[str, str] | None = None,
    tokens: int = TOKENS,
    **request: Any,
) -> httpx.Response:
    body = {
        "model": MODEL,
        "prompt": "Once upon a time",
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "outrider": {"slo_class": slo_class},
        **request,
    }
    headers = {**head(FLOOD), **(headers or {})}
    return httpx.post(f"{service.url}/v1/completions", json=body, headers=headers, timeout=400, verify=PLAIN)


def flood(
    service: Service, slo_class: str | list[str], headers: Mapping[str, str], **request: Any
) -> list[httpx.Response]:
    """Promise so many at once what no processor here can keep."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(lambda _: ask(service, slo_class, headers, **request), range(CLIENTS)))


def test_promises_without_room_are_refused_with_a_reason_and_a_time(service: Service) -> None:
    responses = flood(service, "speed_8", {"x-slo-ttft-ms": "300"})
    counted = Counter(response.status_code for response in responses)
    assert set(counted) == {_OK, _TOO_MANY}, counted
    texts = {r.json()["choices"][0]["text"] for r in responses if r.status_code == _OK}
    assert len(texts) == 1, "the same whoever shares the verifier"
    for response in responses:
        if response.status_code == _TOO_MANY:
            assert int(response.headers["retry-after"]) >= 1
            error = response.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "busy")
            assert error["message"].startswith("speed_8 needs")
    service.check_released()
    eventually(lambda: _counted(service, "refused") >= counted[_TOO_MANY], _TOLD_WITHIN_S)
    eventually(lambda: _counted(service, "kept") + _counted(service, "late") >= counted[_OK], _TOLD_WITHIN_S)


def _counted(service: Service, what: str) -> int:
    """Of the fastest class, as coordinators report every second."""
    reports = service.get("/status")["coordinators"]
    return sum(report["admission"]["classes"].get("speed_8", {}).get(what, 0) for report in reports)


def test_who_names_a_lower_class_is_answered_with_it(service: Service) -> None:
    """By the grammar that it asked for, whichever class it is made under."""
    asked = {"structured_outputs": {"regex": "([a-z]+ ){200}"}, "ignore_eos": False}
    responses = flood(service, ["speed_8", "best_effort"], {"x-slo-ttft-ms": "600000"}, tokens=16, **asked)
    assert {response.status_code for response in responses} == {_OK}
    (text,) = {response.json()["choices"][0]["text"] for response in responses}
    assert re.fullmatch("[a-z ]+", text)
    given = Counter(r.json()["usage"]["outrider"]["slo"]["class"] for r in responses)
    assert set(given) <= {"speed_8", "best_effort"}
    for response in responses:
        slo = response.json()["usage"]["outrider"]["slo"]
        assert slo.get("preferred_class") == ("speed_8" if slo["class"] == "best_effort" else None)
    service.check_released()


def running(service: Service) -> int:
    return sum(report["generations"] for report in service.get("/status")["coordinators"])


def test_a_promise_begins_while_best_effort_holds_every_place(service: Service) -> None:
    with ThreadPoolExecutor(PLACES) as pool:
        crowd = [pool.submit(ask, service, "best_effort", None, 64) for _ in range(PLACES)]
        eventually(lambda: running(service) >= PLACES - 1, _TOLD_WITHIN_S)
        promised = ask(service, "speed_2", tokens=4)
        assert promised.status_code == _OK
        assert {response.result().status_code for response in crowd} == {_OK}
    service.check_released()


def test_a_speed_may_be_asked_for_by_its_time_per_token(service: Service) -> None:
    slo = ask(service, "speed_4", {"x-slo-tpot-ms": "1000"}, 8).json()["usage"]["outrider"]["slo"]
    assert (slo["class"], slo["promised_tokens_per_s"]) == ("speed_4", 1.0)
    refused = ask(service, "speed_4", {"x-slo-tpot-ms": "100"}, 8)
    assert (refused.status_code, refused.json()["error"]["param"]) == (httpx.codes.BAD_REQUEST, "x-slo-tpot-ms")
