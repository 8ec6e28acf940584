"""What requests may say that answers must be: each form, what is refused, and where a grammar begins."""

import json
from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.requests import Grammar
from outrider.grammar.compiling import Grammars
from outrider.text.tokens import backend_of
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.parsing import parse_body
from serve_app.api.openai.structured import begun_by, read_grammar
from serve_app.api.service import Reasoning, StructuredLimits
from tests.unit.serve_app.api.asked_choices import CHAT, COMPLETION
from tests.unit.serve_app.api.asking import CHAT as WHOLE_CHAT
from tests.unit.serve_app.api.asking import error_of, post
from tests.unit.serve_app.api.text_service import LIMITS, SETTINGS, TOKENIZER, TextService

BACKEND = backend_of(TOKENIZER)
GRAMMARS = Grammars.of_tokenizer(BACKEND.to_str(), [2], LIMITS.vocab_size)
AGE = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "age", "strict": True, "schema": AGE}}


def grammar(**fields: Any) -> Grammar | None:
    if fields.pop("chat", True):
        return read_grammar(parse_body(json.dumps(CHAT | fields).encode(), ChatBody, LIMITS), LIMITS)
    return read_grammar(parse_body(json.dumps(COMPLETION | fields).encode(), CompletionBody, LIMITS), LIMITS)


def follows(asked: Grammar | None, text: str) -> bool:
    """Whether a text is what a grammar asks for, from its beginning to its end."""
    assert asked is not None
    state = GRAMMARS.begin(asked)
    ids = [*BACKEND.encode(text, add_special_tokens=False).ids, 2]
    return state.feed(ids) == len(ids)


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize(
    ("fields", "good", "bad"),
    [
        ({"response_format": FORMAT}, '{"age": 3}', '{"age": "3"}'),
        ({"response_format": {"type": "json_object"}}, '{"a": [1, {}]}', "[1]"),
        ({"structured_outputs": {"json": AGE}}, '{"age": -7}', '{"age": 1, "b": 2}'),
        ({"structured_outputs": {"json": json.dumps(AGE)}}, '{ "age" : 5 }', "{}"),
        ({"structured_outputs": {"json": AGE, "disable_any_whitespace": True}}, '{"age":5}', '{ "age": 5}'),
        ({"structured_outputs": {"json_object": True}}, "{}", "true"),
        ({"structured_outputs": {"regex": "[a-c]{2}\\d"}}, "ab1", "ab12"),
        ({"structured_outputs": {"choice": ["yes", 'no "never"']}}, 'no "never"', "no"),
        ({"structured_outputs": {"grammar": 'root ::= "a" ("b" | "c")'}}, "ac", "a"),
        ({"structured_outputs": {"grammar": 'start: "x"+'}}, "xxx", "xy"),
        ({"guided_json": AGE}, '{"age": 3}', '{"ages": 3}'),
        ({"guided_regex": "a+"}, "aa", "b"),
        ({"guided_choice": ["x", "y"]}, "y", "xy"),
        ({"guided_grammar": 'start: "q"'}, "q", "p"),
    ],
)
def test_each_form_is_the_grammar_it_names(fields: dict[str, Any], good: str, bad: str, *, chat: bool) -> None:
    asked = grammar(chat=chat, **fields)
    assert follows(asked, good)
    assert not follows(asked, bad)


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}, {"structured_outputs": None}])
def test_what_asks_for_nothing_is_no_grammar(fields: dict[str, Any]) -> None:
    assert grammar(**fields) is None


DEEP = json.loads('{"items":' * 70 + "{}" + "}" * 70)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format.type", "yaml"),
        ({"response_format": {"type": "json_object", "x": 1}}, "response_format.x", "no known field"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "a schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema.schema",
            "missing",
        ),
        ({"structured_outputs": {"json": {"type": "foo"}}}, "structured_outputs.json", "Invalid type: foo"),
        ({"structured_outputs": {"json": {"$ref": "#/$defs/x"}}}, "structured_outputs.json", "does not exist"),
        (
            {"structured_outputs": {"json": {"uniqueItems": True, "type": "array"}}},
            "structured_outputs.json",
            "uniqueItems",
        ),
        ({"structured_outputs": {"json": "{nonsense"}}, "structured_outputs.json", "JSON schema"),
        ({"structured_outputs": {"json": DEEP}}, "structured_outputs.json", "brackets in each other"),
        (
            {"structured_outputs": {"json": {"enum": ["x" * 40_000, "y" * 26_000]}}},
            "structured_outputs.json",
            "at most 65536 bytes",
        ),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs.regex", "unclosed group"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "none of them empty"),
        ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice", "none of them empty"),
        ({"structured_outputs": {"grammar": "start: foo"}}, "structured_outputs.grammar", "unknown name"),
        ({"structured_outputs": {}}, "structured_outputs", "one of json"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "regex, choice"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", "not supported yet"),
        ({"structured_outputs": {"rejex": "x"}}, "structured_outputs.rejex", "no known field"),
        ({"guided_regex": "a", "response_format": FORMAT}, "guided_regex", "left out beside response_format"),
        ({"guided_regex": "a", "min_tokens": 2}, "min_tokens", "where a response ends"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "where a response ends"),
    ],
)
def test_what_is_no_grammar_is_refused_by_name(fields: dict[str, Any], param: str, message: str) -> None:
    service = TextService(settings=replace(SETTINGS, max_body_bytes=100_000))
    response = post(service, "/v1/chat/completions", WHOLE_CHAT | fields)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert error["param"] == param
    assert message in error["message"]
    assert not service.requests


def test_its_grammar_reaches_the_coordinator() -> None:
    service = TextService()
    assert post(service, "/v1/chat/completions", WHOLE_CHAT | {"response_format": FORMAT, "n": 2}).status_code == 200
    assert [follows(request.params.grammar, '{"age": 3}') for request in service.requests] == [True, True]
    assert service.requests[0].params.seed != service.requests[1].params.seed


def test_a_grammar_that_takes_too_long_is_refused() -> None:
    limits = replace(LIMITS, structured=StructuredLimits(max_compile_s=1e-9))
    body = parse_body(json.dumps(CHAT | {"guided_regex": "abc"}).encode(), ChatBody, limits)
    with pytest.raises(ValueError, match="compiled within"):
        read_grammar(body, limits)


@pytest.mark.parametrize(("prompt", "begins_after"), [((5, 6), 9), ((8, 5), 9), ((8, 5, 9, 6), None), ((9, 8), 9)])
def test_a_grammar_begins_behind_the_reasoning_that_a_prompt_leaves_open(
    prompt: tuple[int, ...], begins_after: int | None
) -> None:
    structured = StructuredLimits(reasoning=Reasoning(8, 9))
    assert begun_by(Grammar("g"), prompt, structured) == Grammar("g", begins_after)
    assert begun_by(Grammar("g"), prompt, StructuredLimits()) == Grammar("g")
