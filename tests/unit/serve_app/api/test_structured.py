"""What requests may say that answers must be: each form, what is refused, and where a grammar begins."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.errors import NotAdmittedError
from outrider.contracts.requests import Grammar
from outrider.grammar.compiling import Grammars
from outrider.grammar.validating import GrammarKind, GrammarSource
from outrider.text.tokens import backend_of
from serve_app.api.gate import account_of
from serve_app.api.grammars.pool import MAX_WAITING, GrammarPool
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.parsing import parse_body
from serve_app.api.openai.structured import begun_by, read_grammar
from serve_app.api.service import Reasoning, StructuredLimits
from tests.unit.grammar.hostile import ENDLESS
from tests.unit.serve_app.api.asked_choices import CHAT, COMPLETION
from tests.unit.serve_app.api.asking import CHAT as WHOLE_CHAT
from tests.unit.serve_app.api.asking import error_of, post
from tests.unit.serve_app.api.text_service import GRAMMARS as VALIDATORS
from tests.unit.serve_app.api.text_service import LIMITS, SETTINGS, TOKENIZER, TextService

BACKEND = backend_of(TOKENIZER)
GRAMMARS = Grammars.of_tokenizer(BACKEND.to_str(), [2], LIMITS.vocab_size)
AGE = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "age", "strict": True, "schema": AGE}}


def grammar(**fields: Any) -> Grammar | None:
    kind: type[ChatBody | CompletionBody]
    kind, body = (ChatBody, CHAT) if fields.pop("chat", True) else (CompletionBody, COMPLETION)
    asked = read_grammar(parse_body(json.dumps(body | fields).encode(), kind, LIMITS), LIMITS)
    if asked is None:
        return None
    return asked.validated(VALIDATORS.submit(asked.source, 30.0, "").result(60))


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
        ({"response_format": {"type": "json_object", "x": 1}}, "response_format.x", "not a known field"),
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
        ({"structured_outputs": {"rejex": "x"}}, "structured_outputs.rejex", "not a known field"),
        ({"guided_regex": "a", "response_format": FORMAT}, "guided_regex", "left out beside response_format"),
        ({"guided_regex": "a", "min_tokens": 2}, "min_tokens", "which ends the response"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "which ends the response"),
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
    limits = replace(LIMITS, structured=StructuredLimits(max_compile_s=0.3))
    body = WHOLE_CHAT | {"guided_grammar": ENDLESS}
    response = post(TextService(limits=limits), "/v1/chat/completions", body)
    assert response.status_code == 400, response.text
    assert "guided_grammar needs to be compiled within 300 ms" in error_of(response)["message"]


@pytest.mark.parametrize(("prompt", "begins_after"), [((5, 6), 9), ((8, 5), 9), ((8, 5, 9, 6), None), ((9, 8), 9)])
def test_a_grammar_begins_behind_the_reasoning_that_a_prompt_leaves_open(
    prompt: tuple[int, ...], begins_after: int | None
) -> None:
    structured = StructuredLimits(reasoning=Reasoning(8, 9))
    assert begun_by(Grammar("g"), prompt, structured) == Grammar("g", begins_after)
    assert begun_by(Grammar("g"), prompt, StructuredLimits()) == Grammar("g")


BILLION = 10**9
COUNTS = ("maxItems", "minItems")


def asking_for(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Requests with a schema in each field that takes one, by the field that their refusal names."""
    parameters = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "list", "parameters": parameters}}
    return {
        "response_format.json_schema.schema": {
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        },
        "structured_outputs.json": {"structured_outputs": {"json": schema}},
        "structured_outputs.grammar": {"structured_outputs": {"grammar": f"start: %json {json.dumps(schema)}"}},
        "guided_json": {"guided_json": json.dumps(schema)},
        "guided_grammar": {"guided_grammar": f'%llguidance {{}}\nstart: "a" %json{json.dumps(schema)}'},
        "tool_choice": {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "list"}}},
    }


def refusal(fields: dict[str, Any]) -> dict[str, Any]:
    service = TextService(limits=replace(LIMITS, tool_format="hermes"))
    response = post(service, "/v1/chat/completions", WHOLE_CHAT | fields)
    assert response.status_code == 400, response.text
    assert not service.requests
    return error_of(response)


@pytest.mark.parametrize("keyword", COUNTS)
@pytest.mark.parametrize("field", asking_for({}))
def test_a_billion_is_refused_by_field_limit_and_number(keyword: str, field: str) -> None:
    error = refusal(asking_for({"properties": {"x": {keyword: BILLION}}})[field])
    assert error["param"] == field
    assert f"{keyword} of at most" in error["message"]
    assert f"found {BILLION}" in error["message"]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("structured_outputs.regex", {"structured_outputs": {"regex": f"(a{{{BILLION},}})b"}}),
        ("structured_outputs.grammar", {"structured_outputs": {"grammar": f'start: ("a" "b"){{{BILLION}}}'}}),
        ("structured_outputs.grammar", {"structured_outputs": {"grammar": f'root ::= ("a" "b"){{{BILLION},}}'}}),
        ("structured_outputs.json", {"structured_outputs": {"json": {}, "whitespace_pattern": f" {{{BILLION}}}"}}),
        ("structured_outputs.json", {"structured_outputs": {"json": {"pattern": f"^a{{{BILLION}}}$"}}}),
        ("guided_regex", {"guided_regex": f"[a-z]{{{BILLION},}}"}),
        ("guided_grammar", {"guided_grammar": f"start: A\nA: /x/~{BILLION}"}),
    ],
)
def test_a_billion_repetitions_are_refused_likewise(field: str, fields: dict[str, Any]) -> None:
    error = refusal(fields)
    assert error["param"] == field
    assert f"repetitions of at most 10000, found {BILLION}" in error["message"]


@pytest.mark.parametrize("text", ["root ::= (", 'root ::= "a', 'a ::= "x"', "SELECT 1", 'a: "x"', "# nothing", "\\"])
def test_a_slip_in_a_grammar_is_the_requests(text: str) -> None:
    error = refusal({"structured_outputs": {"grammar": text}})
    assert (error["param"], error["code"]) == ("structured_outputs.grammar", "invalid_value")
    assert "a grammar in Lark's form or in GBNF (" in error["message"]


def test_what_is_nested_deeper_than_it_can_be_written_is_refused() -> None:
    refusal({"structured_outputs": {"json": json.loads('{"not":' * 300 + "{}" + "}" * 300)}})


def test_a_long_whitespace_pattern_is_refused_by_name() -> None:
    service = TextService(settings=replace(SETTINGS, max_body_bytes=100_000))
    fields = {"structured_outputs": {"json": {}, "whitespace_pattern": " " * 70_000}}
    response = post(service, "/v1/chat/completions", WHOLE_CHAT | fields)
    assert error_of(response)["param"] == "structured_outputs.whitespace_pattern"


def test_grammars_that_find_no_room_are_to_be_tried_again() -> None:
    pool = GrammarPool()
    try:
        sources = (GrammarSource(GrammarKind.RULES, f"// {i}\n{ENDLESS}") for i in range(2 * MAX_WAITING))
        submitted = (pool.submit(source, 30.0, account_of(None, "127.0.0.1")) for source in sources)
        next(submitted)
        while not pool._busy:  # noqa: SLF001 (until it is begun it holds a place of those that wait)
            time.sleep(0.01)
        with pytest.raises(NotAdmittedError):
            list(submitted)
        response = post(TextService(grammars=pool), "/v1/chat/completions", WHOLE_CHAT | {"guided_regex": "ab"})
    finally:
        pool.close()
    assert response.status_code == 429, response.text
    assert response.headers["retry-after"] == "1"
    assert "waiting for this client" in error_of(response)["message"]
