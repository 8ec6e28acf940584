"""Fields that agents' clients send without being asked: taken and obeyed, or without effect."""

from dataclasses import replace
from typing import Any

import pytest

from outrider.models.tokenizer import load_tokenizer
from serve_app.api.openai.bodies import ChatBody
from serve_app.api.openai.fields.template import MAX_KWARGS, MAX_NUMBER
from serve_app.api.openai.promises import FAIRNESS_HEADER, MOST_SHARES, OBJECTIVE_HEADER, read_promises
from serve_app.api.openai.prompts import chat_text
from tests.unit.serve_app.api.asked_choices import choices, generation
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, error_of, events_of, post
from tests.unit.serve_app.api.text_service import LIMITS, TOKENIZER, TextService

FREE: list[dict[str, Any]] = [
    {"store": True},
    {"metadata": {"a": "b"}},
    {"verbosity": "low"},
    {"prompt_cache_retention": "24h"},
    {"priority": 0},
    {"stop_token_ids": []},
    {"skip_special_tokens": True},
    {"service_tier": "auto"},
    {"return_token_ids": False},
]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("fields", FREE, ids=str)
def test_what_has_no_effect_changes_no_choice(path: str, fields: dict[str, Any]) -> None:
    body = CHAT if "chat" in path else COMPLETION
    answer = post(TextService(), path, body | fields)
    assert answer.status_code == 200
    assert answer.json()["choices"] == post(TextService(), path, body).json()["choices"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"metadata": {"a": "b" * 513}}, "metadata.a"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"store": "yes"}, "store"),
        ({"verbosity": "loud"}, "verbosity"),
        ({"prompt_cache_retention": "1y"}, "prompt_cache_retention"),
        ({"stop_token_ids": [10**9]}, "stop_token_ids[0]"),
        ({"stop_token_ids": list(range(129))}, "stop_token_ids"),
        ({"priority": 2**31}, "priority"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": "a" * 129}, "request_id"),
        ({"service_tier": "scale"}, "service_tier"),
        ({"service_tier": "flex", "outrider": {"slo_class": "speed_2"}}, "service_tier"),
        ({"prompt_cache_key": "a" * 1025}, "prompt_cache_key"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "chat_template_kwargs.add_generation_prompt"),
        ({"chat_template_kwargs": {"bos_token": "a"}}, "chat_template_kwargs.bos_token"),
        ({"chat_template_kwargs": {"raise_exception": 1}}, "chat_template_kwargs.raise_exception"),
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs.tokenize"),
        ({"chat_template_kwargs": {"a b": True}}, "chat_template_kwargs.a b"),
        ({"chat_template_kwargs": {"a" * 65: True}}, f"chat_template_kwargs.{'a' * 64}"),
        ({"chat_template_kwargs": {"a": MAX_NUMBER + 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": "b" * 5000}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {f"a{i}": 1 for i in range(MAX_KWARGS + 1)}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": [[[[[[[[[[1]]]]]]]]]]}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"reasoning_effort": "low"}, "reasoning_effort": "high"}, "reasoning_effort"),
    ],
    ids=str,
)
def test_bounds(fields: dict[str, Any], param: str) -> None:
    refused = post(TextService(), "/v1/chat/completions", CHAT | fields)
    assert (refused.status_code, error_of(refused)["param"]) == (400, param)


def test_a_request_is_made_as_it_asks() -> None:
    made = generation(stop_token_ids=[5, 3, 5], skip_special_tokens=False, include_stop_str_in_output=True, priority=-3)
    assert (made.stop_ids, made.special_text, made.keeps_stop, made.priority) == ((3, 5), True, True, -3)


def test_a_cache_key_routes_within_a_keys_salt() -> None:
    alice, bob = replace(LIMITS, tenant="alice"), replace(LIMITS, tenant="bob")
    same = generation(limits=alice, prompt_cache_key="s")
    assert same.affinity == generation(limits=alice, prompt_cache_key="s", prompt="other").affinity != b""
    assert same.cache_salt == generation(limits=alice).cache_salt  # it divides no cache
    others = [
        generation(limits=bob, prompt_cache_key="s"),
        generation(limits=alice, prompt_cache_key="s", cache_salt="x"),
    ]
    assert same.affinity not in [generation(limits=alice).affinity, *(other.affinity for other in others)]


@pytest.mark.parametrize(
    ("tier", "asked", "told"),
    [
        ("flex", "best_effort", "flex"),
        ("priority", "speed_8", "priority"),
        ("auto", "best_effort", "default"),
        ("default", "best_effort", "default"),
        (None, "best_effort", None),
    ],
)
def test_tiers(tier: str | None, asked: str, told: str | None) -> None:
    service = TextService()
    answer = post(service, "/v1/chat/completions", CHAT | {"service_tier": tier})
    assert answer.json().get("service_tier") == told
    assert service.requests[0].slo.name == asked
    events = events_of(post(service, "/v1/chat/completions", CHAT | {"service_tier": tier, "stream": True}))
    assert events[-2].get("service_tier") == told
    only = replace(LIMITS, slo_classes=tuple(slo for slo in LIMITS.slo_classes if slo.name in ("speed_2", "speed_4")))
    speeds = [slo.name for slo in read_promises(None, {}, only, tier).classes]
    assert speeds[0] == {"flex": "speed_2", "priority": "speed_4"}.get(tier or "", only.slo_classes[0].name)


def test_a_request_id_is_part_of_the_answers_id_and_of_no_generations() -> None:
    service = TextService()
    answers = [post(service, "/v1/completions", COMPLETION | {"request_id": "mine"}).json()["id"] for _ in range(2)]
    assert answers == ["cmpl-mine"] * 2
    assert len({request.generation for request in service.requests}) == 2


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_token_ids_are_returned_as_in_vllm(path: str) -> None:
    service, chat = TextService(), "chat" in path
    body = (CHAT if chat else COMPLETION) | {"return_token_ids": True}
    whole = post(service, path, body).json()
    prompt_ids, ids = list(service.requests[0].prompt_ids), whole["choices"][0]["token_ids"]
    assert (whole if chat else whole["choices"][0])["prompt_token_ids"] == prompt_ids
    said = whole["choices"][0]["message"]["content"] if chat else whole["choices"][0]["text"]
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == said
    events = events_of(post(service, path, body | {"stream": True}))[:-1]
    assert [i for event in events for i in event["choices"][0].get("token_ids", [])] == ids
    places = events if chat else [event["choices"][0] for event in events]
    assert [place["prompt_token_ids"] for place in places if "prompt_token_ids" in place] == [prompt_ids]


def test_reasoning_reaches_the_template_and_nobody_else() -> None:
    tokenizer = load_tokenizer("smollm2-135m-instruct")
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.reasoning_content or '' }}]{{ m.content }}{% endfor %}{{ reasoning_effort }}"
    )
    said = [
        {"role": "assistant", "content": "a", "reasoning": "hm"},
        {"role": "user", "content": "b", "reasoning": "x"},
    ]
    chat = ChatBody.model_validate({"model": "m", "messages": said, "reasoning_effort": "low"})
    assert chat_text(chat, tokenizer, LIMITS) == "[hm]a[]blow"


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"id": "m"},
        {"provider_specific_fields": {}},
        {"cache_control": {"type": "ephemeral"}},
        {"content": [{"type": "text", "text": "a", "cache_control": {}}]},
    ],
    ids=str,
)
def test_earlier_turns_as_clients_send_them(message: dict[str, Any]) -> None:
    user = {"role": "user", "content": "b"}
    body = CHAT | {"messages": [user, {"role": "assistant", "content": "a", **message}, user]}
    assert post(TextService(), "/v1/chat/completions", body).status_code == 200


@pytest.mark.parametrize(
    "template",
    [
        "{{ range(1000000) | list }}",
        "{{ n // 0 }}",
        "{{ 10 ** 400 * 1.0 }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ n.a.b }}",
        "{{ n | int + 'a' }}",
    ],
)
def test_whatever_a_template_raises_is_no_fault_of_the_service(template: str) -> None:
    tokenizer = load_tokenizer("smollm2-135m-instruct")
    tokenizer.chat_template = template
    refused = post(TextService(tokenizer=tokenizer), "/v1/chat/completions", CHAT | {"chat_template_kwargs": {"n": 1}})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "messages")


@pytest.mark.parametrize(
    ("name", "older"), [("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"), ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")]
)
def test_newer_names_of_headers(name: str, older: str) -> None:
    service = TextService()
    post(service, "/v1/completions", COMPLETION, **{name: "250"})
    post(service, "/v1/completions", COMPLETION, **{older: "250"})
    assert (service.requests[0].slo, service.requests[0].first_token_s) == (
        service.requests[1].slo,
        service.requests[1].first_token_s,
    )
    for headers in ({name: "soon"}, {name: "250", older: "300"}, {name: "-1"}, {name: "nan"}, {name: ""}):
        refused = post(service, "/v1/completions", COMPLETION, **headers)
        assert (refused.status_code, error_of(refused)["param"]) == (400, name)


def test_objectives_stand_for_classes() -> None:
    limits = replace(LIMITS, objectives={"chat": "speed_4"})
    assert read_promises(None, {OBJECTIVE_HEADER: "chat"}, limits).classes[0].name == "speed_4"
    assert read_promises(None, {OBJECTIVE_HEADER: "other"}, limits).classes[0].name == "best_effort"
    assert read_promises("speed_2", {OBJECTIVE_HEADER: "chat"}, limits).classes[0].name == "speed_2"
    service = TextService(limits=replace(limits, slo_classes=limits.slo_classes[:1]))
    refused = post(service, "/v1/completions", COMPLETION, **{OBJECTIVE_HEADER: "chat"})
    assert (refused.status_code, error_of(refused)["param"]) == (403, OBJECTIVE_HEADER)


def test_fairness_ids_divide_a_share_in_so_many_parts_and_no_more() -> None:
    service = TextService()
    for i in range(20):
        post(service, "/v1/completions", COMPLETION | {"user": "u"}, **{FAIRNESS_HEADER: f"flow {i}"})
    accounts = {request.account for request in service.requests}
    assert len({account.name for account in accounts}) == 1 < len(accounts)
    shares = {read_promises(None, {FAIRNESS_HEADER: str(i)}, LIMITS).fairness for i in range(5000)}
    assert len(shares) == MOST_SHARES
    refused = post(service, "/v1/completions", COMPLETION, **{FAIRNESS_HEADER: "x" * 257})
    assert (refused.status_code, error_of(refused)["param"]) == (400, FAIRNESS_HEADER)


def test_the_fingerprint_is_told() -> None:
    service = TextService(limits=replace(LIMITS, fingerprint="fp_1"))
    assert post(service, "/v1/completions", COMPLETION).json()["system_fingerprint"] == "fp_1"
    events = events_of(post(service, "/v1/chat/completions", CHAT | {"stream": True}))[:-1]
    assert {event["system_fingerprint"] for event in events} == {"fp_1"}


def test_drafts_under_vllms_names() -> None:
    service = TextService()
    whole = post(service, "/v1/completions", COMPLETION).json()
    usage, told = whole["usage"]["outrider"], whole["metrics"]["speculative_decoding"]
    assert told["num_spec_steps"] == usage["speculative_rounds"]
    assert told["num_accepted_draft_tokens"] == usage["accepted_tokens"]
    assert told["mean_acceptance_length"] == 1 + usage["accepted_tokens"] / usage["speculative_rounds"]
    assert told["draft_acceptance_rate"] == usage["accepted_tokens"] / told["num_draft_tokens"]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events = events_of(post(service, "/v1/completions", COMPLETION | options))[:-1]
    assert ["metrics" in event for event in events] == [False] * (len(events) - 1) + [True]


def test_all_choices_are_of_one_request() -> None:
    assert len({choice.request.affinity for choice in choices(n=2, prompt_cache_key="a")}) == 1
