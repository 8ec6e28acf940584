"""One table of cases over all APIs that are read as chats: what is made is the same, and the same is said of it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from ray.exceptions import ActorDiedError

from outrider.contracts.errors import BusyError, GenerationFailedError
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from outrider.tenants.quotas import OverQuota
from serve_app.api.http.routes import make_api
from serve_app.api.openai.fields.ignored import IGNORED_HEADER
from serve_app.api.openai.fields.lengths import CLAMPED_HEADER
from tests.unit.engines.conftest import VOCAB
from tests.unit.serve_app.api.api_calls import API_CALLS, ApiCall, text_of
from tests.unit.serve_app.api.asking import ALL_TEXT, Connection, post, within
from tests.unit.serve_app.api.declared import events_in
from tests.unit.serve_app.api.in_memory_coordinators import Coordinators
from tests.unit.serve_app.api.in_memory_service import tiny_tokenizer
from tests.unit.serve_app.api.test_http_keys import ALICE, BOB, GROUPS, CountingGate
from tests.unit.serve_app.api.text_service import LIMITS, SETTINGS, TextService

EACH = pytest.mark.parametrize("api", API_CALLS)
EITHER = pytest.mark.parametrize("stream", [False, True])
# Fields that mean the same in all APIs: sampling, drafts, classes and trust, and what a request says of itself.
SAME: dict[str, dict[str, Any]] = {
    "nothing": {},
    "greedy": {"temperature": 0.0},
    "sampled by a seed": {"temperature": 0.7, "top_p": 0.9, "seed": 7},
    "other parameters": {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": 0.5},
    "biases": {"logit_bias": {"7": -100, "9": 2.5}, "frequency_penalty": -0.5},
    "stop strings": {"stop": [" over", "never"]},
    "stop tokens": {"stop_token_ids": [5, 7], "min_tokens": 2, "ignore_eos": True},
    "a window": {"outrider": {"window": 3, "protocol": "token_ids", "lookup": 2}},
    "no drafts": {"outrider": {"window": 0, "lookup": False}},
    "trusted drafters": {"outrider": {"drafters": ["lab"]}},
    "a class": {"outrider": {"slo_class": "speed_8"}},
    "classes": {"outrider": {"slo_class": ["speed_8", "best_effort"]}},
    "a tier": {"service_tier": "priority"},
    "a user": {"user": "alice", "prompt_cache_key": "k", "cache_salt": "s", "priority": 3},
    "a grammar": {"structured_outputs": {"choice": ["yes", "no"]}},
}


def asked(call: ApiCall, user: str = "Hello", system: str | None = None, most: int = 40, **fields: Any) -> Any:
    return {**call.body(user, system, most), **call.named(fields)}


def unnamed(request: GenerationRequest) -> GenerationRequest:
    """Without what differs between two requests that are the same."""
    params = request.params if request.reproducible else replace(request.params, seed=0)
    return replace(request, generation="", request_id="", params=params)


@EACH
@EITHER
@pytest.mark.parametrize("fields", SAME)
def test_the_same_is_made_of_the_same_request(api: str, fields: str, *, stream: bool) -> None:
    service, call = TextService(limits=GROUPS), API_CALLS[api]
    for each in (API_CALLS["chats"], call):
        body = asked(each, system="Be brief.", **SAME[fields])
        response = post(service, each.path, body | {"stream": stream})
        text = text_of(each, response)
        assert text == ("The quick 🦊 jumps" if "stop" in SAME[fields] else ALL_TEXT)
    chat, other = map(unnamed, service.requests)
    assert other == chat


@EACH
@EITHER
def test_headers_promise_the_same(api: str, *, stream: bool) -> None:
    service, call = TextService(), API_CALLS[api]
    headers = {"x-llm-d-slo-ttft-ms": "2000", "x-slo-tpot-ms": "200", "x-llm-d-inference-fairness-id": "a"}
    for each in (API_CALLS["chats"], call):
        assert post(service, each.path, asked(each) | {"stream": stream}, **headers).status_code == 200
    chat, other = map(unnamed, service.requests)
    assert other == chat
    assert (other.first_token_s, other.slo.tokens_per_s) == (2.0, 5.0)


@EACH
def test_usage_and_reason_are_the_same(api: str) -> None:
    call = API_CALLS[api]
    chat = API_CALLS["chats"]
    several: list[dict[str, Any]] = [{}, {"stop": " over"}]
    for fields in several:
        expected = post(TextService(), chat.path, asked(chat, **fields)).json()
        found = post(TextService(), call.path, asked(call, **fields)).json()
        assert call.tokens(found) == chat.tokens(expected)
        assert call.finish(found) == chat.finish(expected)
        assert found["usage"]["outrider"] == expected["usage"]["outrider"]


@EACH
def test_nobody_is_answered_without_a_key_and_what_is_made_is_settled(api: str) -> None:
    gate, call = CountingGate(), API_CALLS[api]
    service = TextService(limits=GROUPS, gate=gate)
    assert post(service, call.path, {"nonsense": True}).status_code == 401
    assert service.requests == []
    answer = post(service, call.path, asked(call), authorization=f"Bearer {ALICE}")
    prompt, made = call.tokens(answer.json())
    assert (gate.asked[0].tokens, gate.settled) == (prompt + 40, [prompt + made])
    assert service.requests[0].slo.name == "speed_2", "the key's own"
    refused = post(service, call.path, asked(call, outrider={"slo_class": "speed_8"}), authorization=f"Bearer {ALICE}")
    assert refused.status_code == 403
    post(service, call.path, asked(call), authorization=f"Bearer {BOB}")
    assert service.requests[1].drafters == ("lab",), "the only group that may see the key's prompts"


@EACH
def test_a_key_that_has_nothing_left_is_told_when_it_will(api: str) -> None:
    gate, call = CountingGate(), API_CALLS[api]
    gate.refusal = OverQuota("tokens_per_minute", 600.0, 700.0, 17)
    refused = post(TextService(gate=gate), call.path, asked(call), authorization=f"Bearer {ALICE}")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "17")


@EACH
@EITHER
@pytest.mark.parametrize(("error", "status"), [(BusyError("full"), 429), (GenerationFailedError("gone"), 503)])
def test_an_error_before_the_first_token_is_one_of_http(
    api: str, error: Exception, status: int, *, stream: bool
) -> None:
    call = API_CALLS[api]
    refused = post(TextService(trouble_at=0, error=error), call.path, asked(call) | {"stream": stream})
    assert (refused.status_code, refused.headers["retry-after"]) == (status, "1")
    assert "gone" not in refused.text


@EACH
def test_an_error_amid_a_stream_ends_it_without_its_usual_end(api: str) -> None:
    call = API_CALLS[api]
    service = TextService(trouble_at=6, error=GenerationFailedError("secret"))
    events = list(events_in(post(service, call.path, asked(call) | {"stream": True}).text))
    assert not call.ended(events)
    assert "try again" in events[-1]
    assert "secret" not in "".join(events)
    assert "".join(call.piece(json.loads(event)) for event in events)


@EACH
@EITHER
@pytest.mark.parametrize("trouble_at", [0, 6])
def test_a_client_that_hangs_up_cancels_its_answer(api: str, trouble_at: int, *, stream: bool) -> None:
    async def hang_up() -> None:
        service, call = TextService(trouble_at=trouble_at), API_CALLS[api]
        connection = Connection(call.path, asked(call) | {"stream": stream})
        serving = asyncio.create_task(make_api(service)(connection.scope, connection.receive, connection.send))
        await service.hanging.wait()
        connection.hung_up.set()
        await serving
        assert service.cancelled == 1

    within(hang_up())


@EACH
@pytest.mark.parametrize("trouble_at", [0, 6])
def test_a_late_token_is_a_timeout_and_cancels_the_answer(api: str, trouble_at: int) -> None:
    call = API_CALLS[api]
    first, later = (30.0, 0.01) if trouble_at else (0.01, 30.0)
    settings = replace(SETTINGS, first_chunk_deadline_s=first, next_chunk_deadline_s=later)
    service = TextService(settings=settings, trouble_at=trouble_at)
    assert post(service, call.path, asked(call)).status_code == 504
    assert service.cancelled == 1


@EACH
def test_comments_keep_a_silent_stream_open(api: str) -> None:
    call = API_CALLS[api]
    http = replace(SETTINGS.http, keep_alive_s=0.01)
    service = TextService(settings=replace(SETTINGS, http=http, next_chunk_deadline_s=0.2), trouble_at=6)
    response = post(service, call.path, asked(call) | {"stream": True})
    assert ": keep-alive\n\n" in response.text
    assert "the model did not answer in time" in list(events_in(response.text))[-1]


@EACH
def test_unknown_fields_and_lengths_beyond_the_context_are_told(api: str) -> None:
    call = API_CALLS[api]
    response = post(TextService(), call.path, asked(call, most=32_000, nobody_knows=1, metadata={"a": "b"}, store=True))
    assert text_of(call, response)
    assert (response.headers[IGNORED_HEADER], response.headers[CLAMPED_HEADER]) == ("nobody_knows", "100")
    near = post(TextService(), call.path, asked(call, temprature=1.0))
    assert (near.status_code, "did you mean temperature" in near.text) == (400, True)
    strict = TextService(limits=replace(LIMITS, strict_fields=True))
    assert post(strict, call.path, asked(call, nobody_knows=1)).status_code == 400


class LosingService(TextService):
    """Its coordinators are lost as planned, each amid a response, which goes on at the next one."""

    coordinators: Coordinators

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        self.requests.append(request)
        return self.coordinators.response(request)


def losing(*after: int) -> LosingService:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    limits = replace(LIMITS, vocab_size=VOCAB, max_context_tokens=100, max_output_tokens=60)
    service = LosingService(tokenizer=tokenizer, limits=limits)
    service.coordinators = Coordinators(*((chunks, ActorDiedError()) for chunks in after))
    return service


@EACH
@EITHER
@pytest.mark.parametrize("fields", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "sampled"])
def test_a_lost_coordinator_changes_no_answer(api: str, fields: dict[str, Any], *, stream: bool) -> None:
    """Of real round loops over engines in this process."""
    call, chat = API_CALLS[api], API_CALLS["chats"]
    undisturbed = losing()
    expected = text_of(
        chat, post(undisturbed, chat.path, asked(chat, "w3 w1 w4", most=12, **fields) | {"outrider": {"window": 0}})
    )
    assert len(expected.split()) == 12
    for window in (0, 3):
        service = losing(2, 1)
        body = asked(call, "w3 w1 w4", most=12, **fields) | {"outrider": {"window": window}, "stream": stream}
        response: httpx.Response = post(service, call.path, body)
        assert text_of(call, response) == expected
        assert service.coordinators.resumed == 2
