"""A verdict on whatever is written as a grammar: the library's own failures are told, never raised."""

import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from outrider.grammar.validating import GrammarKind, GrammarSource, validate

RULES = GrammarKind.RULES
TOKENS = LLTokenizer("byte")


def writes(grammar: str, text: str) -> bool:
    """Whether a grammar in the library's form describes a text."""
    matcher, ids = LLMatcher(TOKENS, grammar, log_level=0), list(text.encode())
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((RULES, text) for text in ("root ::= (", 'root ::= "a', 'a ::= "x"', "SELECT 1", 'a: "x"', "# nothing")),
        (RULES, 'root ::= "a\\'),
        (RULES, 'root ::= "a"{²}'),
        (RULES, "root ::= " + "(" * 5_000 + '"a"' + ")?" * 5_000),
        (RULES, "start: foo"),
        (RULES, "start: %json {"),
        (RULES, "start: " + "(" * 5_000 + '"a"' + ")" * 5_000),
        (RULES, "%import nothing.NOTHING\nstart: NOTHING"),
        (RULES, "\n" * 20_000),
        (GrammarKind.REGEX, "(a"),
        (GrammarKind.REGEX, "(?=a)b"),
        (GrammarKind.REGEX, "(" * 5_000),
        (GrammarKind.JSON_SCHEMA, "{nonsense"),
        (GrammarKind.JSON_SCHEMA, "[1]"),
        (GrammarKind.JSON_SCHEMA, '{"multipleOf": 0}'),
        (GrammarKind.JSON_SCHEMA, '{"maximum": 1e400}'),
        (GrammarKind.JSON_SCHEMA, '{"const": 1e400}'),
        (GrammarKind.JSON_SCHEMA, '{"multipleOf": 1e400}'),
        (GrammarKind.JSON_SCHEMA, '{"const": NaN}'),
        (GrammarKind.JSON_SCHEMA, '{"const": "\\ud800"}'),
        (GrammarKind.JSON_SCHEMA, '{"const": ' + "1" * 5_000 + "}"),
        (GrammarKind.JSON_SCHEMA, "[" * 5_000),
        *(
            (kind, f'{before}{{"type": "{of}", "{keyword}": {count}}}')
            for kind, before in ((GrammarKind.JSON_SCHEMA, ""), (RULES, "start: %json "))
            for of, keyword in (("string", "maxLength"), ("object", "maxProperties"))
            for count in ("1e30", "18446744073709551616", "1" * 400, "-1", "0.5")
        ),
        (GrammarKind.JSON_SCHEMA, '{"type": "string", "maxLength": 9223372036854775808}'),
        (GrammarKind.JSON_SCHEMA, '{"type": "string", "pattern": "a{0,9223372036854775808}"}'),
        (RULES, 'start: x{0,9223372036854775808}\nx: "a"'),
        (GrammarKind.JSON_SCHEMA, '{"type": "foo"}'),
        (GrammarKind.JSON_SCHEMA, '{"$ref": "http://elsewhere/x"}'),
        (GrammarKind.JSON_SCHEMA, '{"properties": []}'),
        (GrammarKind.CHOICE, "[1]"),
    ],
)
def test_what_the_library_raises_is_a_verdict(kind: GrammarKind, text: str) -> None:
    verdict = validate(GrammarSource(kind, text))
    assert not verdict.is_valid
    assert 0 < len(verdict.fault or verdict.needed) <= 400
    json.dumps(verdict.fault).encode()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (GrammarKind.JSON_SCHEMA, '{"maxItems": 1000000000}'),
        (GrammarKind.REGEX, "a{1000000000}"),
        (RULES, 'start: "a"{1000000000}'),
        (RULES, 'root ::= x{1000000000}\nx ::= "a" x | "b"'),
        (RULES, "root ::= [a-z]{1000000000}"),
        (RULES, 'start: %json {"maxItems": 1000000000}'),
    ],
)
def test_what_is_too_large_is_told_by_its_bound(kind: GrammarKind, text: str) -> None:
    verdict = validate(GrammarSource(kind, text))
    assert "at most" in verdict.needed
    assert verdict.found == 10**9


def test_what_verifiers_would_keep_is_bounded_whatever_was_compiled_before() -> None:
    array = {"type": "array", "items": {"type": "integer"}, "maxItems": 4096}
    names = map(str, range(7))
    large = GrammarSource(GrammarKind.JSON_SCHEMA, json.dumps({"properties": dict.fromkeys(names, array)}))
    for _ in range(3):
        verdict = validate(large)
        assert verdict.needed == "a compiled form of at most 8 MiB"
        assert "MiB" in str(verdict.found)
        two = json.dumps({"properties": {"a": array, "b": array}})
        assert validate(GrammarSource(GrammarKind.JSON_SCHEMA, two)).is_valid
        many = json.dumps({"properties": {f"property {i}": {"type": "integer"} for i in range(1500)}})
        assert validate(GrammarSource(GrammarKind.JSON_SCHEMA, many)).is_valid


def test_a_whitespace_pattern_is_bounded_too() -> None:
    source = GrammarSource(GrammarKind.JSON_SCHEMA, "{}", whitespace_pattern="[ ]{1000000000}")
    assert validate(source).found == 10**9


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (GrammarKind.JSON_SCHEMA, '{"type": "array", "items": {"type": "integer"}, "maxItems": 4096}'),
        *(
            (GrammarKind.JSON_SCHEMA, f'{{"type": "string", "{keyword}": 2147483647}}')
            for keyword in ("maxLength", "minLength")
        ),
        *(
            (kind, f'{before}{{"type": "object", "{keyword}": {count}}}')
            for kind, before in ((GrammarKind.JSON_SCHEMA, ""), (RULES, "start: %json "))
            for keyword in ("maxProperties", "minProperties")
            for count in (5_000, 2**31 - 1, 2**63)
        ),
        (GrammarKind.JSON_SCHEMA, '{"type": "string", "pattern": "^.{0,5000}$"}'),
        (GrammarKind.REGEX, "[a-z]{1,1000000000}"),
        (GrammarKind.REGEX, "a{10000}"),
        (RULES, "root ::= [a-z]{0,1000000000}"),
        (GrammarKind.CHOICE, '["yes", "no \\"never\\""]'),
        (RULES, 'root ::= [\\-a]+ "!"'),  # llama.cpp's own escape
        (RULES, 'root ::= "\\\\-" [^\\\\\\-]'),
        (RULES, "start: <|im_end|>"),  # a special token, of which the validator knows none
        (RULES, "  \n\n  start : /a/"),
    ],
)
def test_ordinary_grammars_are_valid(kind: GrammarKind, text: str) -> None:
    verdict = validate(GrammarSource(kind, text))
    assert verdict.is_valid, verdict
    assert verdict.text


@pytest.mark.parametrize(
    ("pattern", "texts", "others"),
    [
        (r"\d{3}-\d{4}", ["555-0123"], ["\u0663\u0663\u0663-0123"]),
        (r"\w+", ["a_Z9"], ["é", "-"]),
        (r"[\w.-]+", ["a.b-c"], ["é"]),
        (r"a\sb", ["a b", "a\tb"], ["a\u00a0b"]),
        (r"\D\W\S", ["a-b", "é é"[:1] + "é" + "x"], ["1-b", "aab", "a- "]),
        (r"[^\d\s]+", ["ab\u0663"], ["1", " "]),
        (r"[\D]", ["a"], ["1"]),
        (r"\\d", ["\\d"], ["\\1"]),
    ],
)
def test_classes_of_expressions_are_ascii(pattern: str, texts: list[str], others: list[str]) -> None:
    verdict = validate(GrammarSource(GrammarKind.REGEX, pattern))
    assert verdict.is_valid, verdict.fault
    assert [text for text in texts if not writes(verdict.text, text)] == []
    assert [text for text in others if writes(verdict.text, text)] == []


FORMATTED = 'start: "é" %json {"a":\n {"format": "byte"}} y x\nx: /b+/\ny: "c"\n'


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        (RULES, "start: foo", 'line 1, column 8: unknown name: "foo"'),
        (RULES, 'start: "a"\nfoo "b"', "line 2, column 5: Expected token ':'"),
        (RULES, 'start: "a"\n\n   %%', "line 3, column 5: lexer error"),
        (RULES, "start: A\nA: /[/", "line 2, column 4: invalid regex"),
        (RULES, "start: A\nA: B\nB: A", "line 3, column 4: circular reference"),
        (RULES, 'start: "a"\nb:\n  %json {\n"a": }', "line 4, column 6: needs JSON behind %json (Expecting value)"),
        (RULES, "start: %json", "line 1, column 13: needs JSON behind %json"),
        (RULES, '%llguidance {\nx}\nstart: "a"', "line 2, column 1: %llguidance: key must be a string"),
        (RULES, FORMATTED.replace("y x", ") x"), "line 2, column 22: expecting rule"),
        (RULES, f'{FORMATTED}x: "d"', "line 5, column 4: duplicate rule"),
        (
            RULES,
            FORMATTED.replace('"c"', '%json {"$ref": "#/nope"}'),
            "line 4, column 4: failed to compile JSON schema",
        ),
        (RULES, "start: a\na: a", "there is no text that it describes"),
        (RULES, "root ::= root", "there is no text that it describes"),
        (RULES, 'root ::= "a"\n  "b"{3,2}', "line 2, column 6: needs a largest number of repetitions"),
        (GrammarKind.REGEX, r"\d\w(a", "line 1, column 5: unclosed group"),
        (GrammarKind.REGEX, "a/b\n\\d[z", "line 2, column 3: unclosed character class"),
        (GrammarKind.REGEX, "a{5,2}", "line 1, column 2: invalid repetition count range"),
        (GrammarKind.JSON_SCHEMA, '{\n"a":\n}', "Expecting value: line 3 column 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(kind: GrammarKind, text: str, fault: str) -> None:
    assert validate(GrammarSource(kind, text)).fault.startswith(fault)
