"""Structured output and tools through HTTP, by OpenAI's own client: valid, and the target's own whatever is drafted."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest
from openai import BadRequestError, OpenAI

from tests.cluster.served import MODEL, PLAIN, Service
from tests.cluster.streams import TOKENS, body, stream
from tests.unit.grammar.hostile import ENDLESS

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "books", "rain"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
ASK: Any = [{"role": "user", "content": "Describe a person as JSON."}]
# What drafts, and in what shape: none first, then chains, trees, ratio rules, lookups, a judge.
WAYS: tuple[dict[str, Any], ...] = (
    {"window": 0, "lookup": 0},
    {"window": 4, "protocol": "token_ids"},
    {"window": 3, "protocol": "token_ids", "expansion": [2, 2, 1]},
    {"window": 4, "protocol": "token_ids", "rows": 6},
    {"lookup": 8},
    {},
)
SAMPLING_WAYS: tuple[dict[str, Any], ...] = (
    {"window": 4, "protocol": "dsd"},
    {"window": 4, "protocol": "tslt"},
    {"window": 3, "protocol": "tslt_tree", "expansion": [2, 2, 1]},
    {"window": 4, "protocol": "dssd"},
    {"window": 4, "protocol": "dssd_candidates"},
)


def client_of(service: Service) -> OpenAI:
    return OpenAI(api_key="none", base_url=f"{service.url}/v1", max_retries=0, timeout=300)


def says(service: Service, options: dict[str, Any], **fields: Any) -> Any:
    request: dict[str, Any] = {"messages": ASK, "max_tokens": 80, "temperature": 0, "response_format": FORMAT} | fields
    extra = {"outrider": options} | request.pop("extra_body", {})
    return client_of(service).chat.completions.create(model=MODEL, extra_body=extra, **request)


def assert_valid(choice: Any) -> None:
    """As the schema has it, unless it was cut."""
    if choice.finish_reason == "stop":
        jsonschema.validate(json.loads(choice.message.content), PERSON)
    else:
        assert choice.finish_reason == "length"
        assert choice.message.content.lstrip().startswith("{")


@pytest.mark.parametrize(
    "fields", [{"temperature": 0}, {"temperature": 0.9, "seed": 5}, {"temperature": 1.5, "seed": 6}]
)
def test_whatever_is_drafted_the_answer_is_the_target_alone(service: Service, fields: dict[str, Any]) -> None:
    """All at once, so that generations evict each other as well."""
    with ThreadPoolExecutor(len(WAYS)) as pool:
        answers = list(pool.map(lambda way: says(service, way, **fields), WAYS))
    alone, *others = (answer.choices[0].message.content for answer in answers)
    assert others == [alone] * len(others)
    for answer in answers:
        assert_valid(answer.choices[0])


@pytest.mark.long
def test_what_is_drawn_by_ratio_rules_and_judged_is_valid(service: Service) -> None:
    def ask(number: int) -> Any:
        way = SAMPLING_WAYS[number % len(SAMPLING_WAYS)]
        return says(service, way, temperature=1.0)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(3 * len(SAMPLING_WAYS))))
    answers += [
        says(service, {"window": 4, "protocol": name, "verification": "semantic"})
        for name in ("wisv_full", "wisv_selective")
    ]
    for answer in answers:
        assert_valid(answer.choices[0])
    assert any(answer.choices[0].finish_reason == "stop" for answer in answers)


@pytest.mark.parametrize(
    ("asked", "good"),
    [
        ({"structured_outputs": {"choice": ["positive", "negative"]}}, {"positive", "negative"}),
        (
            {"structured_outputs": {"regex": "(red|blue) [1-3]"}},
            {f"{c} {n}" for c in ("red", "blue") for n in (1, 2, 3)},
        ),
        ({"structured_outputs": {"grammar": 'start: "a" ("b" | "c")'}}, {"ab", "ac"}),
        ({"guided_choice": ["x", "y"]}, {"x", "y"}),
    ],
)
def test_each_form_for_completions(service: Service, asked: dict[str, Any], good: set[str]) -> None:
    answer = client_of(service).completions.create(
        model=MODEL, prompt="The sentiment is", max_tokens=20, temperature=0.8, extra_body=asked
    )
    assert answer.choices[0].text in good
    assert answer.choices[0].finish_reason == "stop"


def test_what_is_no_schema_is_a_400(service: Service) -> None:
    wrong: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    with pytest.raises(BadRequestError, match="Invalid type: nonsense"):
        says(service, {}, response_format=wrong)
    tools: Any = [{"type": "function", "function": {"name": "weather"}}]
    with pytest.raises(BadRequestError, match="tools is not supported by this model"):
        client_of(service).chat.completions.create(model=MODEL, messages=ASK, tools=tools)


def test_a_stream_says_the_same(service: Service) -> None:
    whole = says(service, {}).choices[0].message.content
    request: dict[str, Any] = {"messages": ASK, "max_tokens": 80, "temperature": 0, "response_format": FORMAT}
    events = client_of(service).chat.completions.create(model=MODEL, stream=True, **request)
    assert "".join(event.choices[0].delta.content or "" for event in events if event.choices) == whole


BILLION = 10**9
COUNTED = {"type": "array", "items": {"type": "integer"}, "maxItems": BILLION}
HOSTILE: tuple[dict[str, Any], ...] = (
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": COUNTED}}},
    {"structured_outputs": {"json": COUNTED}},
    {"structured_outputs": {"grammar": f"start: %json {json.dumps(COUNTED)}"}},
    {"guided_json": COUNTED},
    {"guided_regex": f"a{{{BILLION}}}"},
    {"guided_grammar": ENDLESS},
)


def test_hostile_grammars_cost_a_stream_beside_them_nothing(service: Service) -> None:
    """The ingress lives, and nobody's stream is cut; how long that is silent is measured elsewhere."""
    before = service.pids("ServeReplica:outrider:Ingress")
    assert before

    def post(fields: dict[str, Any]) -> httpx.Response:
        request = {"model": MODEL, "messages": ASK, "max_tokens": 8, **fields}
        return httpx.post(f"{service.url}/v1/chat/completions", json=request, timeout=60, verify=PLAIN)

    with ThreadPoolExecutor(len(HOSTILE) + 1) as pool:
        beside = pool.submit(stream, service.url, body(0))
        answers = list(pool.map(post, HOSTILE))
        said = beside.result()
    assert [answer.status_code for answer in answers] == [400] * len(HOSTILE)
    messages = [answer.json()["error"]["message"] for answer in answers]
    assert all(f"found {BILLION}" in message for message in messages[:-1]), messages
    assert "to be compiled within" in messages[-1]
    assert len(said.token_logprobs) == TOKENS
    assert service.pids("ServeReplica:outrider:Ingress") == before
    assert says(service, {}).choices[0].message.content
