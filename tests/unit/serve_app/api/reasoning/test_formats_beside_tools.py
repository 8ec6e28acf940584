"""A format of the answer beside tools: an answer in the format, or calls, in each family's form."""

import json
from typing import Any

import pytest

from serve_app.api.openai.tools.formats.registry import FORMS
from tests.unit.serve_app.api.asking import CHAT, MESSAGE, RESPONSE, error_of, events_of, post
from tests.unit.serve_app.api.reasoning.model_families import service_of
from tests.unit.serve_app.api.reasoning.test_tool_formats import CLOCK, FAMILIES, WRITE, written
from tests.unit.serve_app.api.reasoning.test_tool_grammars import asked, follows

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
FITS, FITS_NOT = '{"name": "é", "n": 3}', '{"name": "é", "n": "x"}'
GOOD = {"text": "Rome (é) <b> 5", "count": 3, "really": True}
HEADS = {"gpt_oss": ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>",)}


def call_in(family: str, arguments: dict[str, Any]) -> str:
    """A call as the grammar has it, which leaves out what a template adds."""
    if family == "gpt_oss":
        values = json.dumps(arguments, ensure_ascii=False)
        return f"<|channel|>commentary to=functions.write <|constrain|>json<|message|>{values}"
    text = written(family, [("write", arguments)])
    for extra in (', "id": "abcdef000"', "<|python_start|>", "<|python_end|>"):
        text = text.replace(extra, "")
    return text.replace("really=true", "really=True") if family == "llama4" else text


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_is_in_the_format_or_calls_tools(family: str) -> None:
    grammar = asked(family, response_format=FORMAT)
    (head,) = HEADS.get(family, ("",))
    assert follows(family, grammar, head + FITS)
    assert not follows(family, grammar, head + FITS_NOT)
    assert not follows(family, grammar, head + "Hi")
    assert follows(family, grammar, call_in(family, GOOD))
    named = asked(family, response_format=FORMAT, tool_choice="none")
    assert not follows(family, named, call_in(family, GOOD))


@pytest.mark.parametrize(("family", "form"), [*FAMILIES.items(), ("llama4", "llama3_json")])
def test_strict_schemas_are_enforced_beside_a_format_where_they_are_without_one(family: str, form: str) -> None:
    """Which a form may not be able to do."""
    item = {"type": "array", "items": {"type": "string", "pattern": "a"}, "uniqueItems": True}
    parameters = {"type": "object", "properties": {"text": {"type": "string", "pattern": "a"}, "items": item}}
    strict = {"name": "write", "strict": True, "parameters": {**parameters, "minProperties": 1}}
    body = CHAT | {"tools": [{"type": "function", "function": strict}]}
    alone, beside = (
        post(service_of(family, "Hi", form), "/v1/chat/completions", body | fields)
        for fields in ({}, {"response_format": FORMAT})
    )
    assert beside.status_code == alone.status_code == (400 if FORMS[form].trigger else 200)


FLAT = {"type": "function", **WRITE["function"]}  # type: ignore[dict-item]
APIS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT | {"tools": [WRITE], "response_format": FORMAT},
    "/v1/responses": RESPONSE
    | {"tools": [FLAT], "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
    "/v1/messages": MESSAGE
    | {
        "tools": [{"name": "write", "input_schema": WRITE["function"]["parameters"]}],  # type: ignore[index]
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
}
JSON_CALL = '{"name": "write", "parameters": {"text": "Rome"}}'
ANSWERS = [
    *[(family, form, HEADS.get(family, ("",))[0], FITS, "") for family, form in FAMILIES.items()],
    *[(family, form, "", call_in(family, GOOD), "write") for family, form in FAMILIES.items()],
    ("llama4", "llama3_json", "", FITS, ""),
    ("llama4", "llama3_json", "", FITS.replace("é", "write"), ""),
    ("llama4", "llama3_json", "", JSON_CALL, "write"),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("family", "form", "head", "text", "called"), ANSWERS)
def test_it_is_read_as_what_it_is(family: str, form: str, head: str, text: str, called: str, *, stream: bool) -> None:
    """An answer with a property ``name`` is no call, where nothing marks calls."""
    service = service_of(family, head + text, form)
    body = APIS["/v1/chat/completions"] | {"max_tokens": 300, "stream": stream}
    response = post(service, "/v1/chat/completions", body)
    assert follows(family, service.requests[0].params.grammar, head + text)
    if stream:
        deltas = [event["choices"][0]["delta"] for event in events_of(response)[:-1]]
    else:
        deltas = [response.json()["choices"][0]["message"]]
    names = [call["function"].get("name") for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(filter(None, names)) == called
    assert "".join(delta.get("content") or "" for delta in deltas) == ("" if called else text)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_must_be_called_is_called_whatever_the_format(family: str) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "write"}}):
        grammar = asked(family, response_format=FORMAT, tool_choice=choice)
        assert follows(family, grammar, call_in(family, GOOD))
        assert not follows(family, grammar, FITS)


@pytest.mark.parametrize("strict", [True, False])
def test_only_strict_tools_are_held_to_their_schemas(*, strict: bool) -> None:
    tools = [{"type": "function", "function": {**WRITE["function"], "strict": strict}}, CLOCK]  # type: ignore[dict-item]
    grammar = asked("qwen3", tools=tools, response_format={"type": "json_object"})
    assert follows("qwen3", grammar, call_in("qwen3", GOOD))
    assert follows("qwen3", grammar, call_in("qwen3", {"text": 3})) is not strict
    assert follows("qwen3", grammar, '{"any": "thing"}')
    two = call_in("qwen3", GOOD) + "\n" + written("qwen3", [("clock", {})])
    assert follows("qwen3", grammar, two)
    one = asked("qwen3", tools=tools, response_format={"type": "json_object"}, parallel_tool_calls=False)
    assert not follows("qwen3", one, two)


def test_it_begins_behind_the_reasoning() -> None:
    grammar = asked("qwen3", response_format=FORMAT)
    assert grammar is not None
    assert grammar.opened_by is not None
    assert grammar.begins_after is not None


@pytest.mark.parametrize("path", APIS)
def test_all_apis_have_it(path: str) -> None:
    service = service_of("qwen3", "Hi", "hermes")
    response = post(service, path, APIS[path])
    assert response.status_code == 200, response.text
    grammar = service.requests[0].params.grammar
    assert [follows("qwen3", grammar, text) for text in (FITS, FITS_NOT, call_in("qwen3", GOOD))] == [True, False, True]


BAD = {"type": "object", "properties": {"a": {"type": "nothing"}}}
STRICT_BAD = {"type": "function", "function": {"name": "bad", "strict": True, "parameters": BAD}}


@pytest.mark.parametrize(
    ("schema", "tools", "param", "found"),
    [
        (BAD, [WRITE], "response_format.json_schema.schema", json.dumps(BAD)),
        (SCHEMA, [WRITE, STRICT_BAD], "tools", json.dumps([WRITE])[:60]),
        ('{}\n | "free text"', [WRITE], "response_format.json_schema.schema", '{}\n | "free text"'),
        ("3", [WRITE], "response_format.json_schema.schema", "3"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_named(schema: object, tools: list[Any], param: str, found: str) -> None:
    bad = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = CHAT | {"tools": tools, "response_format": bad}
    response = post(service_of("qwen3", "Hi", "hermes"), "/v1/chat/completions", body)
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param
    message = error_of(response)["message"]
    assert found.removesuffix("]") in message.replace('\\"', '"').replace("\\n", "\n")
    assert "start:" not in message
    assert "line " not in message.replace("line 2 column 2", "")


def test_a_schema_as_a_text_is_one_of_json() -> None:
    text = json.dumps(SCHEMA, indent=1)
    grammar = asked("qwen3", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": text}})
    assert [follows("qwen3", grammar, text) for text in (FITS, FITS_NOT)] == [True, False]


def test_the_schema_of_a_tool_that_must_be_called_is_shown() -> None:
    response = post(
        service_of("qwen3", "Hi", "hermes"),
        "/v1/chat/completions",
        CHAT | {"tools": [STRICT_BAD], "tool_choice": "required"},
    )
    assert "start:" not in error_of(response)["message"]
    assert "Invalid type: nothing" in error_of(response)["message"]
