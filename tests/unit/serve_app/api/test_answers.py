"""Each answer of a service is what its ``/openapi.json`` says: every field is named there, and every name is met."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import httpx
import jsonschema
import pytest

from actors.messages import (
    CoordinatorReport,
    DialledStatus,
    DrafterState,
    DrafterStatus,
    GatewayStatus,
    LinkReport,
    SloRounds,
)
from outrider.admission.decisions import AdmissionReport, ClassAdmission
from outrider.config.access import HttpConfig
from outrider.contracts.errors import BusyError, GenerationFailedError, NonFiniteError
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from outrider.contracts.verifying import KvUsage
from outrider.costs.profiles import ProfiledOn
from outrider.selection.tuning.report import TunerReport
from outrider.selection.tuning.rewards import Reward
from outrider.tenants.quotas import OverQuota
from serve_app.api.http_errors import ERROR_KINDS, FieldError, answer_for
from serve_app.api.openapi.document import openapi_document
from serve_app.service_answers import Ready, Status
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, ask, events_of, post
from tests.unit.serve_app.api.declared import Declared
from tests.unit.serve_app.api.reasoning.model_families import thinking_in
from tests.unit.serve_app.api.test_http_keys import ALICE, CountingGate
from tests.unit.serve_app.api.test_http_usage import REPORT
from tests.unit.serve_app.api.test_tools import CLOCK, WEATHER, hermes
from tests.unit.serve_app.api.text_service import LIMITS, SETTINGS, TEXT, TextService

TOLD_LIMITS = replace(LIMITS, fingerprint="fp_1")
DOCUMENT = openapi_document(LIMITS, keys=True, reads_need_key=True)
CALLS = "Let me see. " + hermes("weather", '{"city": "Rome"}') + "\n" + hermes("clock", "{}") + " END"
PATHS = {"chat": ("/v1/chat/completions", CHAT), "completion": ("/v1/completions", COMPLETION)}
TOLD = {"spans": True, "details": True, "explain": True}
ASKED: Mapping[str, dict[str, Any]] = {
    "nothing": {},
    "spans": {"outrider": {"spans": True}},
    "details": {"outrider": {"details": True}},
    "spans, details and reasons": {"outrider": TOLD},
    "several choices": {"n": 2, "outrider": TOLD},
    "a stop string": {"stop": " over", "outrider": TOLD},
    "a class": {"outrider": {"slo_class": "speed_8"}},
    "several classes": {"outrider": {"slo_class": ["speed_8", "best_effort"]}},
    "a broken promise": {"n": 3, "outrider": {"slo_class": "speed_8"}},
    "semantic verification": {"temperature": 0, "n": 2, "outrider": {"verification": "semantic"}},
    "other sampling": {"temperature": 0.5, "top_k": 7},
    "one token": {"max_tokens": 1},
    "token ids": {"return_token_ids": True},
    "a tier": {"service_tier": "priority"},
}
ASKED_OF_CHATS: Mapping[str, dict[str, Any]] = {
    "log-probabilities": {"logprobs": True, "outrider": TOLD},
    "alternatives": {"logprobs": True, "top_logprobs": 2, "n": 2},
    "tools": {"tools": [WEATHER, CLOCK], "stop": " END", "max_tokens": 90},
    "tools and all that is told": {
        "tools": [WEATHER, CLOCK],
        "logprobs": True,
        "top_logprobs": 1,
        "outrider": TOLD,
        "stop": " END",
        "max_tokens": 90,
        "n": 2,
    },
    "reasoning": {"include_reasoning": True},
    "a tool by name": {"tools": [CLOCK, WEATHER], "tool_choice": {"type": "function", "function": {"name": "clock"}}},
}
ASKED_OF_COMPLETIONS: Mapping[str, dict[str, Any]] = {
    "log-probabilities": {"logprobs": 0, "outrider": TOLD},
    "alternatives": {"logprobs": 2, "n": 2},
    "several prompts": {"prompt": ["A", "Once upon"], "n": 2},
    "an echo": {"echo": True},
    "an echo and its scores": {"echo": True, "logprobs": 2, "outrider": TOLD},
    "an echo alone": {"echo": True, "logprobs": 1, "max_tokens": 0},
}
STREAMED: Mapping[str, dict[str, Any]] = {
    "whole": {},
    "streamed": {"stream": True},
    "with usage": {"stream": True, "stream_options": {"include_usage": True}},
    "with usage so far": {"stream": True, "stream_options": {"continuous_usage_stats": True}},
    "with both": {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
}
CASES = [
    (what, asked, how)
    for what, own in (("chat", ASKED_OF_CHATS), ("completion", ASKED_OF_COMPLETIONS))
    for asked, how in product([*ASKED, *own], STREAMED)
]
ERRORS: Mapping[str, tuple[dict[str, Any], int]] = {  # of a body with these fields instead
    "an unknown field": ({"temprature": 1}, 400),
    "a value that cannot be": ({"temperature": 3}, 400),
    "a field that is not supported": ({"functions": [{}]}, 400),
    "tools of a model without a form": ({"tools": [WEATHER]}, 400),
    "a prompt that is too long": ({"max_tokens": 100, "messages": [{"role": "user", "content": "long " * 300}]}, 400),
    "another model": ({"model": "other"}, 404),
    "a class that a key may not name": ({"outrider": {"slo_class": "speed_8"}}, 403),
}
THOUGHTS = f"◁think▷The quick fox.◁/think▷{TEXT}"
# Of completions: what only chats have. Of /ready: what is told where no coordinator answered.
UNMET = {"completion": {"CompletionDetails.reasoning_tokens"}, "/ready": {"Ready.reason"}}
DRAFTER = DrafterStatus(
    "drafter-lab-0", "lab", DrafterState.REFUSED, "no file", 1, 4, 2, DialledStatus("laptop", "gateway-0", 8000, 800)
)
GATEWAY = GatewayStatus("gateway-0", "gateway:8443", 1, 2, {"revoked": 3}, "no certificate")
KV = KvUsage(16, 100, 10, 5, 2, 0)
COORDINATOR = CoordinatorReport(
    "coordinator-0",
    "ready",
    10.0,
    kv=KV,
    phase_seconds={"draft": 1.0},
    slo={"speed_8": SloRounds(3, 1)},
    regime=TunerReport("draft", "none", (("draft", (Reward(1.0, 2.0, 3.0, 0.1),)),), (("draft", 1),), 0.5, 9.0, 1),
    admission=AdmissionReport(classes={"speed_8": ClassAdmission()}),
    machine=ProfiledOn("a CPU", "cpu", 2, "torch", "m", "float32"),
    links={"drafter-lab-0": LinkReport(0.05, 2e7, 2e7)},
    faults={"timeout": 2},
)


@dataclass
class ToldService(TextService):
    """Says why its rounds were made so, lowers whom it may, and judges what may be judged."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """The same, with more told of it."""
        async with aclosing(super().generate(request)) as chunks:
            async for chunk in chunks:
                stats = replace(chunk.stats, judged_tokens=2, overrides=(1,)) if request.semantic else chunk.stats
                reasons = (REPORT, replace(REPORT, runner_up=None)) if request.explain else ()
                yield replace(chunk, stats=stats, choices=reasons, granted=next(iter(request.lower), None))

    async def ready(self) -> Ready:
        """As a coordinator has it."""
        return {
            "ready": True,
            "verifier": "answers",
            "max_context_tokens": 256,
            "generations": 2,
            "queued_blocks": 0,
            "kv": asdict(KV),
            "verifier_idle_s": 0.5,
        }

    async def status(self) -> Status:
        """A coordinator and a drafter, about which there is much to say."""
        return {
            "model": "m",
            "drafters": [asdict(DRAFTER)],
            "coordinators": [asdict(COORDINATOR)],
            "gateways": [asdict(GATEWAY)],
        }


def answered(what: str, asked: str, how: str) -> httpx.Response:
    """Of a service that does what it is asked for."""
    path, body = PATHS[what]
    fields = {**ASKED, **(ASKED_OF_CHATS if what == "chat" else ASKED_OF_COMPLETIONS)}[asked]
    form, thinks = "hermes" if "tools" in fields else "", "include_reasoning" in fields
    limits = replace(TOLD_LIMITS, judges=True, tool_format=form, thinking=thinking_in("kimi") if thinks else None)
    service = ToldService(limits=limits, texts=(CALLS if form else THOUGHTS if thinks else TEXT,))
    return post(service, path, body | fields | STREAMED[how])


def check(declared: Declared, path: str, response: httpx.Response, method: str = "post") -> list[Any]:
    return declared.check(method, path, response.status_code, response.headers["content-type"], response.text)


@pytest.mark.parametrize(("what", "asked", "how"), CASES, ids=[", ".join(case) for case in CASES])
def test_a_response_is_as_described(what: str, asked: str, how: str) -> None:
    response = answered(what, asked, how)
    assert response.status_code == 200, response.text
    found = check(Declared(DOCUMENT), PATHS[what][0], response)
    assert len(found) == 1 if how == "whole" else len(found) > 1


@pytest.mark.parametrize("what", PATHS)
def test_every_field_that_is_described_is_met_in_a_response(what: str) -> None:
    path, _ = PATHS[what]
    declared = Declared(DOCUMENT)
    for case in CASES:
        if case[0] == what:
            check(declared, path, answered(*case))
    failing = TextService(trouble_at=6, error=GenerationFailedError("lost"))
    check(declared, path, post(failing, path, PATHS[what][1] | {"stream": True}))
    content = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]
    described = declared.fields_below(content)
    assert len(described) > 50
    assert described - declared.seen == UNMET.get(what, set())
    assert not declared.seen - described


@pytest.mark.parametrize("what", PATHS)
@pytest.mark.parametrize("error", [GenerationFailedError("lost"), NonFiniteError("not finite"), RuntimeError("ours")])
def test_an_error_amid_a_stream_is_as_described(what: str, error: Exception) -> None:
    path, body = PATHS[what]
    response = post(TextService(trouble_at=6, error=error), path, body | {"stream": True})
    *_, last = check(Declared(DOCUMENT), path, response)
    assert last["error"]["code"] == answer_for(error).code
    assert events_of(response)[-1] == last


@pytest.mark.parametrize("asked", ERRORS)
def test_what_is_wrong_with_a_request_is_told_as_described(asked: str) -> None:
    fields, status = ERRORS[asked]
    path, body = PATHS["chat"]
    response = post(TextService(gate=CountingGate()), path, body | fields, authorization=f"Bearer {ALICE}")
    assert response.status_code == status, response.text
    check(Declared(DOCUMENT), path, response)


def refusals() -> Iterator[tuple[int, str, str, httpx.Response]]:
    """The status, method and path of requests that are answered with an error, and what they are answered."""
    path, json = "/v1/completions", {"content-type": "application/json"}
    yield 401, "post", path, post(TextService(gate=CountingGate()), path, COMPLETION)
    yield 401, "get", "/v1/models", ask(TextService(gate=CountingGate()), "GET", "/v1/models")
    for path in ("/status", "/metrics"):
        secured = TextService(gate=CountingGate(), settings=replace(SETTINGS, reads_need_key=True))
        yield 401, "get", path, ask(secured, "GET", path)
    for path, methods in DOCUMENT["paths"].items():
        for method in methods:
            for host, status in (("other.example", 421), ("a b", 400)):
                headers = {"host": host}
                local = TextService(settings=replace(SETTINGS, http=HttpConfig()))
                yield status, method, path, ask(local, method.upper(), path.format(model="m"), headers=headers)
    path = "/v1/completions"
    yield 404, "get", "/v1/models/{model}", ask(TextService(), "GET", "/v1/models/other")
    gate = CountingGate()
    gate.refusal = OverQuota("requests_per_minute", 1, 1, 60)
    yield 429, "post", path, post(TextService(gate=gate), path, COMPLETION, authorization=f"Bearer {ALICE}")
    yield 413, "post", path, ask(TextService(), "POST", path, content=b" " * 60_000, headers=json)
    yield 415, "post", path, ask(TextService(), "POST", path, content=b"{}", headers={"content-type": "text/plain"})
    yield 400, "post", "/tokenize", post(TextService(), "/tokenize", {})
    yield 400, "post", "/detokenize", post(TextService(), "/detokenize", {"tokens": [-1]})
    yield 503, "get", "/ready", ask(TextService(is_ready=False), "GET", "/ready")
    for error, status in ((BusyError("full"), 429), (RuntimeError("ours"), 500), (GenerationFailedError("lost"), 503)):
        yield status, "post", path, post(TextService(trouble_at=0, error=error), path, COMPLETION)
    late = TextService(settings=replace(SETTINGS, first_chunk_deadline_s=0.01), trouble_at=0)
    yield 504, "post", path, post(late, path, COMPLETION)


def test_what_is_refused_is_told_as_described() -> None:
    for status, method, path, response in refusals():
        assert response.status_code == status, response.text
        check(Declared(DOCUMENT), path, response, method)


@pytest.mark.parametrize("kind", ERROR_KINDS, ids=lambda kind: kind.__name__)
def test_errors_of_every_kind_are_as_described(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "what was needed")
    if issubclass(kind, FieldError):
        error.field = "messages[0].content"  # type: ignore[attr-defined]  # as it has itself
    vars(error)["retry_after_s"] = 1
    schema = DOCUMENT["paths"]["/v1/completions"]["post"]["responses"]["400"]["content"]["application/json"]["schema"]
    Declared(DOCUMENT).check_as(schema, answer_for(error).body)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/{model}", "/version", "/health", "/ready", "/status"])
def test_what_can_be_read_is_as_described_and_all_of_it_is_there(path: str) -> None:
    declared = Declared(DOCUMENT)
    for headers in ({}, {"anthropic-version": "2023-06-01"}):
        response = ask(ToldService(), "GET", path.format(model=LIMITS.model_name), headers=headers)
        check(declared, path, response, "get")
    content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]
    assert declared.fields_below(content) - declared.seen == UNMET.get(path, set())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "Once upon", "return_token_strs": True}),
        ("/tokenize", {"messages": CHAT["messages"]}),
        ("/detokenize", {"tokens": [5, 17, 42]}),
    ],
)
def test_tokens_are_told_as_described(path: str, body: dict[str, Any]) -> None:
    declared = Declared(DOCUMENT)
    check(declared, path, post(TextService(), path, body))
    content = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]
    assert not declared.fields_below(content) - declared.seen


def test_a_field_that_is_not_described_is_found() -> None:
    """Also within a list, and of one of several kinds that an answer may be of."""
    declared = Declared(DOCUMENT)
    path, body = PATHS["chat"]
    whole = post(TextService(), path, body).json()
    schema = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    declared.check_as(schema, whole)
    whole["choices"][0]["message"]["mood"] = "fair"
    with pytest.raises(AssertionError, match=r"does not name \.choices\[\]\.message\.mood"):
        declared.check_as(schema, whole)
    del whole["choices"][0]["message"]["role"]
    with pytest.raises(jsonschema.ValidationError, match="'role' is a required property"):
        declared.check_as(schema, whole)
