"""Classes in order of preference, headers that ask for times, and what a refusal says."""

from dataclasses import replace

import pytest

from outrider.contracts.errors import NotAdmittedError
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, error_of, post
from tests.unit.serve_app.api.text_service import LIMITS, TextService

PATHS = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT}


def asked(service: TextService) -> tuple[list[str], float, float | None]:
    """Classes, promised speed and time to the first token of the only request."""
    (request,) = service.requests
    return [slo.name for slo in (request.slo, *request.lower)], request.slo.tokens_per_s, request.first_token_s


@pytest.mark.parametrize("path", PATHS)
def test_classes_are_taken_in_their_order(path: str) -> None:
    service = TextService()
    post(service, path, PATHS[path] | {"outrider": {"slo_class": ["speed_8", "speed_2", "best_effort"]}})
    assert asked(service) == (["speed_8", "speed_2", "best_effort"], 8.0, None)


@pytest.mark.parametrize("classes", [[], ["speed_2", "speed_2"], ["speed_2", "fast"], [2], {"speed_2": 1}])
def test_what_is_no_choice_of_classes_is_refused(classes: object) -> None:
    response = post(TextService(), "/v1/completions", COMPLETION | {"outrider": {"slo_class": classes}})
    assert response.status_code == 400
    assert error_of(response)["param"].startswith("outrider.slo_class")


def test_a_time_per_token_is_promised_under_the_slowest_class_that_is_fast_enough() -> None:
    service = TextService()
    answer = post(service, "/v1/completions", COMPLETION, **{"X-SLO-TPOT-ms": "200"}).json()
    assert asked(service) == (["speed_6"], 5.0, None)
    assert answer["usage"]["outrider"]["slo"]["promised_tokens_per_s"] == 5.0


def test_a_time_per_token_slows_down_a_class_that_is_named() -> None:
    service = TextService()
    body = COMPLETION | {"outrider": {"slo_class": ["speed_8", "best_effort"]}}
    post(service, "/v1/completions", body, **{"x-slo-tpot-ms": "500"})
    assert asked(service) == (["speed_8", "best_effort"], 2.0, None)


@pytest.mark.parametrize(
    ("named", "header", "value", "needed"),
    [
        (None, "x-slo-tpot-ms", "100", "at least 125, what speed_8 promises"),
        ("speed_2", "x-slo-tpot-ms", "400", "at least 500, what speed_2 promises"),
        ("best_effort", "x-slo-tpot-ms", "400", "to be left out beside best_effort"),
        (None, "x-slo-tpot-ms", "fast", "a number of milliseconds, above 0"),
        (None, "x-slo-tpot-ms", "nan", "a number of milliseconds"),
        (None, "x-slo-ttft-ms", "-5", "a number of milliseconds"),
        (None, "x-slo-ttft-ms", "1e99", "at most 600000"),
    ],
)
def test_a_header_gets_no_more_than_its_class_promises(named: str | None, header: str, value: str, needed: str) -> None:
    service = TextService()
    body = COMPLETION | {"outrider": {"slo_class": named}}
    response = post(service, "/v1/completions", body, **{header: value})
    assert response.status_code == 400
    error = error_of(response)
    assert (error["param"], error["code"]) == (header, "invalid_value")
    assert needed in error["message"]
    assert service.requests == []


def test_a_time_to_the_first_token_is_passed_on_within_what_is_allowed() -> None:
    service = TextService()
    post(service, "/v1/completions", COMPLETION, **{"x-slo-ttft-ms": "250"})
    assert asked(service) == (["best_effort"], 0.0, 0.25)
    strict = TextService(limits=replace(LIMITS, least_first_token_ms=300.0))
    response = post(strict, "/v1/completions", COMPLETION, **{"x-slo-ttft-ms": "250"})
    assert "at least 300" in error_of(response)["message"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_says_what_was_missing_and_when_to_come_back(path: str, *, stream: bool) -> None:
    error = NotAdmittedError(
        "speed_8 needs 0.080 verifier seconds per second, found 0.700 of 0.720; try again in 9 s", 9
    )
    service = TextService(trouble_at=0, error=error)
    response = post(service, path, PATHS[path] | {"stream": stream})
    assert (response.status_code, response.headers["retry-after"]) == (429, "9")
    assert error_of(response) == {
        "message": str(error),
        "type": "rate_limit_error",
        "param": None,
        "code": "busy",
    }
