"""Forms of tool calls: work is bounded whatever schema or text comes, and nothing depends on where text is cut."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from outrider.contracts.errors import ParameterError
from serve_app.api.openai.reasoning.marks import FoundMark, Mark, Text
from serve_app.api.openai.reasoning.pieces import Piece
from serve_app.api.openai.tools.formats import parameters as parameters_module
from serve_app.api.openai.tools.formats import pythonic, qwen_xml
from serve_app.api.openai.tools.formats.base import NO_MARKS, Tool
from serve_app.api.openai.tools.formats.parameters import resolved, types_of
from serve_app.api.openai.tools.formats.registry import FORMS
from serve_app.api.openai.tools.formats.scanning import begun
from tests.unit.serve_app.api.reasoning.test_tool_formats import calls_in, said_in
from tests.unit.serve_app.api.reasoning.test_tool_grammars import asked, follows

WITHOUT_JSON = ["qwen3_xml", "pythonic"]  # forms that write arguments one by one
CALLS_IN_JSON = {
    "hermes": '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
    "llama3_json": '{"name": "f", "parameters": {}}',
}
FAMILY = {"qwen3_xml": "qwen3_coder", "pythonic": "llama4"}


def tool_of(properties: dict[str, Any], **others: Any) -> Tool:
    return Tool("f", {"type": "object", "properties": properties, **others}, {})


def read(form: str, parts: Iterable[FoundMark | str], *tools: Tool) -> list[Piece]:
    reader = FORMS[form].reader(tools, NO_MARKS)
    texts = (Text(part, 0) if isinstance(part, str) else part for part in parts)
    return [piece for part in texts for piece in reader.push(part)] + reader.finish()


def told(form: str, text: str, *tools: Tool) -> tuple[list[tuple[str, str]], str]:
    """Calls and text, which must not depend on the cuts."""
    cuts = {size: [text[at : at + size] for at in range(0, len(text), size)] for size in (1, 2, 7, len(text))}
    found = {size: read(form, parts, *tools) for size, parts in cuts.items()}
    told_by_size = [(calls_in(pieces), said_in(pieces)) for pieces in found.values()]
    assert all(each == told_by_size[0] for each in told_by_size), told_by_size
    return told_by_size[0]


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_schemas_that_refer_to_themselves_are_looked_at_once(keyword: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[Any]()

    def counted(tool: Tool, schema: Any) -> Any:
        looked.append(schema)
        return resolved(tool, schema)

    monkeypatch.setattr(parameters_module, "resolved", counted)
    itself = {"$ref": "#/$defs/A"}
    assert types_of(tool_of({}, **{"$defs": {"A": {keyword: [itself] * 64}}}), itself) == frozenset()
    assert len(looked) == 1


def test_types_are_looked_for_in_a_bounded_number_of_schemas() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(6):
        schema = {"anyOf": [schema] * 64}
    assert types_of(tool_of({}), schema) == frozenset()
    assert types_of(tool_of({}), {"anyOf": [{"type": "integer"}] * 64}) == {"integer"}


def test_a_schema_that_is_named_twice_has_its_types() -> None:
    tool = tool_of({}, **{"$defs": {"A": {"enum": [1, None]}, "B": {"$ref": "#/$defs/A"}}})
    either = {"anyOf": [{"$ref": "#/$defs/B"}, {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}
    assert types_of(tool, either) == {"integer", "null"}


@pytest.mark.parametrize("form", WITHOUT_JSON)
def test_rules_are_bounded_while_they_are_made(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    symbol = parameters_module.json_symbol

    def counted(tool: Tool, schema: Any) -> str:
        made.append(symbol(tool, schema))
        return made[-1]

    for module in (parameters_module, pythonic):
        monkeypatch.setattr(module, "json_symbol", counted)
    definitions = {"A": {"type": "integer", "description": "x" * 20_000}}
    tool = tool_of({f"p{i}": {"$ref": "#/$defs/A"} for i in range(2000)}, **{"$defs": definitions})
    with pytest.raises(ParameterError, match="tools needs at most 65536 bytes"):
        FORMS[form].rules([tool], NO_MARKS, several=True)
    assert sum(map(len, made)) < 100_000


@pytest.mark.parametrize("form", WITHOUT_JSON)
def test_definitions_are_copied_only_where_they_are_named(form: str) -> None:
    definitions = {"A": {"type": "integer", "description": "x" * 20_000}}
    properties = {f"p{i}": {"type": "integer"} for i in range(50)}
    rules = FORMS[form].rules([tool_of(properties, **{"$defs": definitions})], NO_MARKS, several=True)
    assert sum(map(len, rules)) < 20_000
    named = {**properties, "near": {"items": {"$ref": "#/$defs/A"}, "type": "array"}}
    rules = FORMS[form].rules([tool_of(named, **{"$defs": definitions})], NO_MARKS, several=True)
    assert "".join(rules).count("$defs") == 2  # the reference, and what it names


@pytest.mark.parametrize("form", WITHOUT_JSON)
def test_required_parameters_are_collected_once_a_tool(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, asked_for = {"qwen3_xml": qwen_xml, "pythonic": pythonic}[form], list[str]()
    required_of = parameters_module.required_of

    def counted(tool: Tool) -> frozenset[str]:
        asked_for.append(tool.name)
        return required_of(tool)

    monkeypatch.setattr(module, "required_of", counted)
    properties = {f"p{i}": {"type": "integer"} for i in range(100)}
    FORMS[form].rules([tool_of(properties, required=list(properties))], NO_MARKS, several=True)
    assert asked_for == ["f"]


def test_a_strict_tool_leaves_its_neighbours_their_arguments() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    odd = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x+"}}, "minProperties": 1}
    tools = [
        {"type": "function", "function": {"name": "held", "parameters": schema, "strict": True}},
        {"type": "function", "function": {"name": "free", "parameters": odd}},
    ]
    grammar, form = asked("qwen3_coder", tools=tools), FORMS["qwen3_xml"]
    for name, arguments, fits in (
        ("held", {"n": 3}, True),
        ("held", {"n": "many"}, False),
        ("held", {"a": "x"}, False),
        ("free", {"a": "x\ny", "b": [1]}, True),
        ("free", {}, True),
    ):
        text = "I look. " + form.written(name, arguments)
        assert follows("qwen3_coder", grammar, text) == fits, text
    assert not follows("qwen3_coder", grammar, form.written("free", {}).replace("</function>", "Hi\n</function>"))
    assert asked("llama4", tools=tools) is None  # such calls are the whole answer, which may be text


@pytest.mark.parametrize("form", WITHOUT_JSON)
@pytest.mark.parametrize(
    ("schema", "fits"),
    [({"type": "object"}, True), ({}, True), (None, False), ({"type": "object", "additionalProperties": False}, False)],
)
def test_a_tool_without_described_parameters_takes_any(form: str, schema: dict[str, Any] | None, fits: bool) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    grammar = asked(FAMILY[form], tools=tools, tool_choice="required")
    for arguments in ({"a": "x"}, {"a": 1, "b_2": {"c": [None]}}):
        text = FORMS[form].written("f", arguments).replace("None", "null")
        assert follows(FAMILY[form], grammar, text) == fits, text
    assert follows(FAMILY[form], grammar, FORMS[form].written("f", {}))
    assert not follows(FAMILY[form], grammar, FORMS[form].written("g", {}))


@pytest.mark.parametrize("escape", ["\\UFFFFFFFF", "\\U00110000", "\\U80000000", "\\ud800", "\\xZZ", "\\u12"])
def test_escapes_that_are_no_characters_leave_text(escape: str) -> None:
    text = f'[f(a="{escape}")]'
    assert told("pythonic", text) == ([], text)


@pytest.mark.parametrize(
    ("written", "value"),
    [("(1)", 1), ("(1,)", [1]), ("()", []), ("(1, 2)", [1, 2]), ("((1))", 1), ("[1]", [1]), ("[(1)]", [1])],
)
def test_a_tuple_needs_a_comma(written: str, value: object) -> None:
    ((_, arguments),), _ = told("pythonic", f"[f(a={written})]")
    assert json.loads(arguments) == {"a": value}


CALLS = {
    "qwen3_xml": "<tool_call>\n<function=f>\n</function>\n</tool_call>",
    "pythonic": "[f()]",
}


@pytest.mark.parametrize("form", CALLS)
@pytest.mark.parametrize(
    ("behind", "said"),
    [("", ""), ("  \n", ""), ("  \nDone. ", "  \nDone. "), ("\n" * 999 + "x \n", "\n" * 999 + "x \n"), ("x", "x")],
)
def test_blanks_behind_a_call_are_told_only_before_text(form: str, behind: str, said: str) -> None:
    assert told(form, CALLS[form] + behind) == ([("f", "{}")], said)


@pytest.mark.parametrize("blanks", [0, 490, 498, 499, 500, 501, 505, 510, 511, 512, 513, 600])
def test_the_limit_of_heads_does_not_depend_on_cuts(blanks: int) -> None:
    text = f"<tool_call>{' ' * blanks}<function=f>\n</function>\n</tool_call>"
    few = blanks + len("<function=f>") <= 512
    assert told("qwen3_xml", text) == (([("f", "{}")], "") if few else ([], text))
    text = f"{' ' * blanks}[f()]"
    few = blanks + len("[f(") <= 512
    assert told("pythonic", text) == (([("f", "{}")], "") if few else ([], text))


def test_a_call_behind_a_head_that_is_none_is_read() -> None:
    text = "<tool_call>\n<function=a b>" + CALLS["qwen3_xml"]
    assert told("qwen3_xml", text) == ([("f", "{}")], "<tool_call>\n<function=a b>")


@pytest.mark.parametrize("reference", ["#/properties/none", "#/properties/b~1c/x", "other.json", "#/properties/a"])
def test_a_reference_without_a_schema_lets_any_type_be_read(reference: str) -> None:
    tool = tool_of({"a": {"$ref": reference}})
    for value, parsed in (("3", 3), ("x", "x")):
        ((_, arguments),), _ = told("qwen3_xml", FORMS["qwen3_xml"].written("f", {"a": value}), tool)
        assert json.loads(arguments) == {"a": parsed}


def test_references_may_name_what_has_slashes_and_tildes() -> None:
    tool = tool_of({"a": {"$ref": "#/properties/b~1~0c"}, "b/~c": {"type": "string"}})
    assert types_of(tool, {"$ref": "#/properties/b~1~0c"}) == {"string"}
    ((_, arguments),), _ = told("qwen3_xml", FORMS["qwen3_xml"].written("f", {"a": "3"}), tool)
    assert json.loads(arguments) == {"a": "3"}


def test_types_of_a_parameter_are_looked_for_once_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[Any]()

    def counted(tool: Tool, schema: Any) -> frozenset[str]:
        looked.append(schema)
        return types_of(tool, schema)

    monkeypatch.setattr(qwen_xml, "types_of", counted)
    text = FORMS["qwen3_xml"].written("f", {"a": "3", "b": "4"}) * 50
    calls, _ = told("qwen3_xml", text, tool_of({"a": {"type": "string"}}))
    assert calls == [("f", '{"a": "3", "b": 4}')] * 50
    assert len(looked) == 4  # readers, one for each way to cut


def marked(text: str) -> list[FoundMark | str]:
    """Text by characters, with tags that are special tokens, which show nothing."""
    parts, at = list[FoundMark | str](), 0
    while at < len(text):
        tag = next((tag for tag in qwen_xml.QwenXml.marks if text.startswith(tag, at)), None)
        parts.append(text[at] if tag is None else FoundMark(Mark(tag, 7, special=True), "", at, at))
        at += len(tag or text[at])
    return parts


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        ("Hi " + CALLS["qwen3_xml"] + "\n" + CALLS["qwen3_xml"] + " \n", ["f", "f"], "Hi "),
        (CALLS["qwen3_xml"] + "\nDone", ["f"], "\nDone"),
        ("a<tool_call>b</tool_call>c", [], "abc"),
        ("<tool_call>\n<func" + CALLS["qwen3_xml"], ["f"], "\n<func"),
        ("<tool_call>\n<function=f>\nHi</tool_call>!", [], "\n<function=f>\nHi!"),
        ("</tool_call><tool_call>", [], ""),
    ],
)
def test_tags_that_are_special_tokens_are_read(text: str, names: list[str], said: str) -> None:
    pieces = read("qwen3_xml", marked(text))
    assert [name for name, _ in calls_in(pieces)] == names
    assert said_in(pieces) == said


def test_blanks_behind_a_call_are_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = list[int]()

    def counted(tag: str, text: str) -> int:
        scanned.append(len(text))
        return begun(tag, text)

    monkeypatch.setattr(qwen_xml, "begun", counted)
    assert calls_in(read("qwen3_xml", [CALLS["qwen3_xml"], *(" " * 10_000)])) == [("f", "{}")]
    assert sum(scanned) < 30_000


@pytest.mark.parametrize(
    ("form", "text", "calls", "said"),
    [
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}\nHi', 1, "\nHi"),
        ("mistral", "[TOOL_CALLS]f[ARGS]{}  \n", 1, ""),
        ("mistral", "[TOOL_CALLS]f[ARGS]{}\n[TOOL_CALLS]g[ARGS]{}", 2, ""),
        ("mistral", f"[TOOL_CALLS]{'f' * 300}[ARGS]{{}}", 0, f"[TOOL_CALLS]{'f' * 300}[ARGS]{{}}"),
        ("mistral_list", "[TOOL_CALLS][1, 2]\n\nHello", 0, "[TOOL_CALLS][1, 2]\n\nHello"),
        ("mistral_list", '[TOOL_CALLS][{"name": "f", "arguments": {}}]\n\nHello', 1, "\n\nHello"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n \nHi', 1, "\n \nHi"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n <tool_ca', 1, "\n <tool_ca"),
        ("llama3_json", '{"name": "f", "parameters": {}};\n ; {"name": "g", "parameters": {}} \n', 2, ""),
        ("llama3_json", '{"name": "f", "parameters": {}}\n Hi', 1, "\n Hi"),
        ("llama3_json", " \n ", 0, " \n "),
        ("hermes", f"{CALLS_IN_JSON['hermes']}\n <tool_call>{{<x</tool_call>", 1, "\n <tool_call>{<x</tool_call>"),
        ("qwen3_xml", f"{CALLS['qwen3_xml']}\n <tool_call>\n<x", 1, "\n <tool_call>\n<x"),
        ("llama3_json", f'{CALLS_IN_JSON["llama3_json"]}\n {{"a": 1}} ', 1, '\n {"a": 1} '),
    ],
)  # fmt: skip
def test_text_behind_calls_is_the_same_however_it_is_cut(form: str, text: str, calls: int, said: str) -> None:
    for size in (1, 2, 3, 7, len(text)):
        pieces = read(form, [text[at : at + size] for at in range(0, len(text), size)])
        assert (len(calls_in(pieces)), said_in(pieces)) == (calls, said), size


@pytest.mark.parametrize("form", ["hermes", "llama3_json"])
def test_blanks_behind_a_json_call_are_held_once(form: str) -> None:
    reader, call = FORMS[form].reader((), NO_MARKS), CALLS_IN_JSON[form]
    reader.push(Text(call, 0))
    for blank in " \n" * 5_000:
        reader.push(Text(blank, 0))
        assert len(vars(reader)["_held"]) <= 1
    assert said_in([*reader.push(Text("Hi", 0)), *reader.finish()]) == " \n" * 5_000 + "Hi"


def test_tags_that_are_special_tokens_begin_and_end_calls() -> None:
    opens, closes = (FoundMark(Mark(text, 5, special=True), "", 0, 0) for text in ("<tool_call>", "</tool_call>"))
    pieces = read("hermes", ["I look.", opens, '{"name": "f", "arguments": {}}', closes])
    assert (calls_in(pieces), said_in(pieces)) == ([("f", "{}")], "I look.")


def test_arguments_in_a_list_stay_as_they_are_written() -> None:
    text = '[TOOL_CALLS] [ {"name": "f", "arguments": {"a": 1.10, "b": 12345678901234567890123.0}}, {"name": "g"}]'
    assert calls_in(read("mistral_list", [text])) == [("f", '{"a": 1.10, "b": 12345678901234567890123.0}'), ("g", "{}")]
    for broken in ("[]", '[{"name": "f"} {"name": "g"}]', '[{"name": "f"},]', '[{"name": "f"}', "[" * 5000):
        assert calls_in(read("mistral_list", [f"[TOOL_CALLS]{broken}"])) == []
