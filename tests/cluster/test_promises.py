"""Promised speeds through a real cluster: answers are the same whatever was promised, and it is told what was kept."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from serve_app import metrics
from tests.cluster.prompts import CHATS
from tests.cluster.served import MODEL, Service, eventually, scraped

TOKENS = 24
CLASSES = ("speed_2", "speed_4", "speed_6", "speed_8", "best_effort")
_EXPORTED_WITHIN_S = 60.0


def ask(service: Service, slo_class: str | None, prompt: str = CHATS[0]) -> dict[str, Any]:
    """One greedy chat."""
    body: dict[str, object] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    options = {} if slo_class is None else {"outrider": {"slo_class": slo_class}}
    return service.post("/v1/chat/completions", body | options)


def slo_of(answer: dict[str, Any]) -> dict[str, Any]:
    """What it says of its promise."""
    slo = answer["usage"]["outrider"]["slo"]
    assert isinstance(slo, dict)
    return slo


@pytest.mark.parametrize("name", ["speed_2", "speed_8", "best_effort", None])
def test_a_response_tells_what_was_promised_and_given(service: Service, name: str | None) -> None:
    answer = ask(service, name)
    slo = slo_of(answer)
    known = {known.name: known.tokens_per_s for known in service.config.slo.classes}
    promised = known[name or service.config.slo.default]
    assert slo["class"] == (name or service.config.slo.default)
    assert slo["promised_tokens_per_s"] == (promised or None)
    assert slo["achieved_tokens_per_s"] > 0
    assert slo["kept"] is (slo["achieved_tokens_per_s"] >= promised)
    late = sum(slo["late_rounds"].values())
    assert 0 <= late < answer["usage"]["outrider"]["rounds"]
    if not promised:
        assert (late, slo["times_behind"]) == (0, 0)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_an_unknown_class_is_refused_with_the_known_ones(service: Service, path: str) -> None:
    prompt = {"prompt": "a"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
    body = {"model": MODEL, **prompt, "outrider": {"slo_class": "fast"}}
    response = httpx.post(f"{service.url}{path}", json=body, timeout=60)
    assert response.status_code == httpx.codes.BAD_REQUEST
    error = response.json()["error"]
    assert error["param"] == "outrider.slo_class"
    assert all(name in error["message"] for name in CLASSES)


def test_concurrent_responses_of_all_classes_say_what_they_would_alone(service: Service) -> None:
    prompts = CHATS[: len(CLASSES)]
    alone = [ask(service, None, prompt)["choices"][0]["message"]["content"] for prompt in prompts]
    asked = [(i, name) for i, name in enumerate(CLASSES)] + [(i, name) for i, name in enumerate(reversed(CLASSES))]
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda each: ask(service, each[1], prompts[each[0]]), asked))
    for (i, name), answer in zip(asked, answers, strict=True):
        assert answer["choices"][0]["message"]["content"] == alone[i]
        assert answer["usage"]["completion_tokens"] == TOKENS
        assert slo_of(answer)["class"] == name


def test_promises_are_in_the_metrics_of_ingress_and_coordinator(service: Service) -> None:
    def responses(slo_class: str, name: str = metrics.SLO_RESPONSES.name) -> float:
        return scraped(f"{service.url}/metrics", name, slo_class=slo_class)

    def rounds() -> float:
        return service.exported(metrics.SLO_ROUNDS, slo_class="speed_4")

    before = responses("speed_4"), rounds()
    told = [ask(service, "speed_4")["usage"]["outrider"]["rounds"] for _ in range(2)]
    ask(service, "best_effort")
    assert responses("speed_4") == before[0] + 2
    assert responses("best_effort") == 0, "nothing was promised"
    assert min(responses(name, f"{metrics.RESPONSE_SPEED.name}_count") for name in ("speed_4", "best_effort")) >= 1
    judged = sum(told) - len(told)  # pace counts from each one's first round
    eventually(lambda: rounds() >= before[1] + judged, _EXPORTED_WITHIN_S)
    status = service.get("/status")
    assert sum(report["slo"]["speed_4"]["rounds"] for report in status["coordinators"]) >= judged
