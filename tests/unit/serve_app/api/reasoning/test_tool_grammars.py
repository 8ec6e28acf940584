"""Grammars of calls, in each family's form."""

import json
from contextlib import suppress
from functools import cache, reduce
from typing import Any

import pytest

from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import Grammar
from outrider.grammar.compiling import Grammars
from outrider.text.tokens import backend_of
from serve_app.api.openai.tools.formats.base import Tool
from serve_app.api.openai.tools.formats.registry import FORMS
from tests.hostile.grammars import SCHEMAS
from tests.unit.serve_app.api.asking import CHAT, error_of, post
from tests.unit.serve_app.api.reasoning.model_families import service_of, tokenizer_of
from tests.unit.serve_app.api.reasoning.test_tool_formats import CLOCK, FAMILIES, WRITE, written


@cache
def grammars_of(family: str) -> Grammars:
    tokenizer = tokenizer_of(family)
    return Grammars.of_tokenizer(backend_of(tokenizer).to_str(), [2], len(tokenizer))


def follows(family: str, grammar: Grammar | None, text: str) -> bool:
    assert grammar is not None
    ids = [*tokenizer_of(family).encode(text), 2]
    return grammars_of(family).begin(Grammar(grammar.text)).feed(ids) == len(ids)


def asked(family: str, **fields: Any) -> Grammar | None:
    service = service_of(family, "Hi", FAMILIES[family])
    response = post(
        service,
        "/v1/chat/completions",
        CHAT | {"messages": [{"role": "user", "content": "?"}], "tools": [WRITE, CLOCK]} | fields,
    )
    assert response.status_code == 200, response.text
    return service.requests[0].params.grammar


GOOD = {"text": "Rome (é) <b> 5", "count": 3, "really": True, "maybe": None}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tool_that_must_be_called_is_held_to_its_schema(family: str) -> None:
    required = asked(family, tool_choice="required")
    one, bad = written(family, [("write", GOOD)]), written(family, [("write", {**GOOD, "count": "many"})])
    end = "<|call|>"
    ended = [
        text.removesuffix(end).replace("assistant to=functions.write<|channel|>commentary json", "")
        for text in (one, bad)
    ]
    if family == "gpt_oss":
        head = "<|channel|>commentary to=functions.write <|constrain|>json<|message|>"
        ended = [head + json.dumps(GOOD, ensure_ascii=False), head + '{"text": 3}']
        thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + ended[0]
        assert follows(family, required, thought)
    if family == "mistral_v7":
        ended = [text.replace(', "id": "abcdef000"', "") for text in ended]
    if family == "llama4":
        ended = [
            text.replace("<|python_start|>", "").replace("<|python_end|>", "").replace("really=true", "really=True")
            for text in ended
        ]
    assert [follows(family, required, text) for text in ended] == [True, False]
    assert not follows(family, required, "Hi")
    named = asked(family, tool_choice={"type": "function", "function": {"name": "clock"}})
    assert not follows(family, named, ended[0])


@pytest.mark.parametrize("family", ["qwen3", "qwen3_coder", "magistral", "llama4"])
def test_parallel_calls_can_be_refused(family: str) -> None:
    two = written(family, [("clock", {}), ("clock", {})]).replace("<|python_start|>", "").replace("<|python_end|>", "")
    assert follows(family, asked(family, tool_choice="required"), two)
    assert not follows(family, asked(family, tool_choice="required", parallel_tool_calls=False), two)


@pytest.mark.parametrize("family", ["qwen3", "qwen3_coder"])
def test_a_strict_tool_is_held_to_its_schema_where_it_may_be_called(family: str) -> None:
    strict = [{"type": "function", "function": {**WRITE["function"], "strict": True}}, CLOCK]  # type: ignore[dict-item]
    grammar = asked(family, tools=strict)
    good, bad = written(family, [("write", GOOD)]), written(family, [("write", {"text": "a", "count": "many"})])
    other = written(family, [("clock", {})])
    for text, fits in {"Hi <b>.": True, f"I look.\n{good}\n{other} Done": True, bad: False, f"a{bad}": False}.items():
        assert follows(family, grammar, text) == fits, text
    assert asked(family) is None
    assert asked(family, tools=strict, tool_choice="none") is None


def test_a_strict_tool_beside_a_response_format_is_not_called() -> None:
    strict = [{"type": "function", "function": {**WRITE["function"], "strict": True}}]  # type: ignore[dict-item]
    grammar = asked("qwen3_coder", tools=strict, response_format={"type": "json_object"})
    assert follows("qwen3_coder", grammar, "{}")


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "x+"}}}, "pattern"),
        ({"type": "object", "properties": {"a": {"type": "string", "format": "date"}}}, "format"),
        ({"type": "object", "properties": {}, "minProperties": 2}, "minProperties"),
        ({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}, "$ref"),
        ({"type": "object", "properties": {}, "required": ["b"]}, "b"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(schema: dict[str, Any], param: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = CHAT | {"messages": [{"role": "user", "content": "?"}], "tools": [tool], "tool_choice": "required"}
    response = post(service_of("qwen3_coder", "Hi", "qwen3_xml"), "/v1/chat/completions", body)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert error["param"] == "tools.f.function.parameters"
    assert param in error["message"]


def _any_of(inner: dict[str, Any], _: int) -> dict[str, Any]:
    return {"anyOf": [inner]}


@pytest.mark.parametrize("form", FORMS)
def test_no_schema_raises_anything_but_a_refusal(form: str) -> None:
    """As a tool's parameters, and as one parameter's schema."""
    odd: dict[str, Any] = {
        "odd types": {"type": ["string", {"a": 1}, 3]},
        "odd lengths": {"type": "string", "minLength": "} | x"},
        "a boolean": True,
        "odd names": {"properties": {"a>b\n": {}}},
        "odd properties": {"properties": [1], "required": {"a": 1}},
        "deep": reduce(_any_of, range(300), {"type": "string"}),
    }
    for schema in [*SCHEMAS.values(), *odd.values()]:
        for parameters in ({"type": "object", "properties": {"a": schema}}, schema):
            if isinstance(parameters, dict):
                with suppress(ParameterError):
                    assert FORMS[form].rules([Tool("f", parameters, {})], {}, several=True)


def test_values_of_references_and_choices_are_enforced() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "unit": {"enum": ["C", "F"]},
            "near": {"$ref": "#/$defs/Place"},
            "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "code": {"type": "string", "minLength": 2, "maxLength": 3},
        },
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"lat": {"type": "number"}},
                "required": ["lat"],
                "additionalProperties": False,
            }
        },
    }
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    grammar = asked("qwen3_coder", tools=tools, tool_choice="required")
    for arguments, fits in (
        ({"unit": "C", "near": {"lat": 1.5}, "name": "x", "code": "ab"}, True),
        ({"unit": "K"}, False),
        ({"near": {"lat": "x"}}, False),
        ({"code": "abcd"}, False),
        ({}, True),
    ):
        assert follows("qwen3_coder", grammar, written("qwen3_coder", [("f", arguments)])) == fits, arguments
