"""What a client is told of its promise. The service says 40 tokens in 14 rounds: 37 of them in 3.25 s."""

from typing import Any

import pytest

from tests.unit.serve_app.api.asking import CHAT, COMPLETION, error_of, events_of, post
from tests.unit.serve_app.api.text_service import TextService

PATHS = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT}


def promised(name: str, **fields: object) -> dict[str, Any]:
    return COMPLETION | {"outrider": {"slo_class": name}} | fields


def slo_of(body: dict[str, Any]) -> dict[str, Any]:
    slo = body["usage"]["outrider"]["slo"]
    assert isinstance(slo, dict)
    return slo


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_class_is_refused_with_the_known_ones(path: str, *, stream: bool) -> None:
    service = TextService()
    response = post(service, path, PATHS[path] | {"outrider": {"slo_class": "fast"}, "stream": stream})
    error = error_of(response)
    assert response.status_code == 400
    known = "best_effort, speed_2, speed_4, speed_6, speed_8"
    assert error["message"] == f"outrider.slo_class needs one of {known}, found 'fast'"
    assert (error["type"], error["param"]) == ("invalid_request_error", "outrider.slo_class")
    assert service.requests == []


@pytest.mark.parametrize("path", PATHS)
def test_a_promise_is_reported_beside_what_was_given(path: str) -> None:
    answer = post(TextService(), path, PATHS[path] | {"outrider": {"slo_class": "speed_8"}}).json()
    assert slo_of(answer) == {
        "class": "speed_8",
        "promised_tokens_per_s": 8.0,
        "achieved_tokens_per_s": 11.384,
        "kept": True,
        "cause": None,
        "times_behind": 0,
        "late_rounds": {"queue": 7, "compute": 3},
    }


def test_of_several_choices_the_slowest_counts() -> None:
    slo = slo_of(post(TextService(), "/v1/completions", promised("speed_8", n=3)).json())
    assert (slo["achieved_tokens_per_s"], slo["kept"]) == (3.794, False), "a third of the first one's speed"
    assert slo["cause"] == "queue", "of most of the late rounds"
    assert (slo["times_behind"], slo["late_rounds"]) == (0 + 1 + 2, {"queue": 21, "compute": 9})
    assert slo_of(post(TextService(), "/v1/completions", promised("speed_2", n=3)).json())["kept"]


def test_a_response_without_a_speed_broke_no_promise() -> None:
    slo = slo_of(post(TextService(), "/v1/completions", promised("speed_8", max_tokens=3)).json())
    assert (slo["achieved_tokens_per_s"], slo["kept"]) == (None, True), "all its tokens came at once"


@pytest.mark.parametrize("name", ["speed_8", "best_effort"])
def test_a_stream_ends_with_the_same_account(name: str) -> None:
    body = promised(name, stream=True, stream_options={"include_usage": True})
    *_, usage, _ = events_of(post(TextService(), "/v1/completions", body))
    assert slo_of(usage) == slo_of(post(TextService(), "/v1/completions", promised(name)).json())


def test_the_account_comes_with_the_last_usage_alone() -> None:
    asked = promised("speed_8", stream=True, stream_options={"continuous_usage_stats": True})
    *events, last, _ = events_of(post(TextService(), "/v1/completions", asked))
    assert all(sorted(event["usage"]) == ["completion_tokens", "prompt_tokens", "total_tokens"] for event in events)
    assert slo_of(last)["achieved_tokens_per_s"] == 11.384
