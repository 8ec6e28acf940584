import json

import pytest

from outrider.grammar.repeats import TooLargeError
from outrider.grammar.schema_subset import followed
from outrider.grammar.texts import of_lark
from outrider.grammar.validating import GrammarKind, GrammarSource, validate

UNKNOWN = [
    "password",
    "file-path",
    "base64",
    "byte",
    "binary",
    "uri-reference",
    "regex",
    "json-pointer",
    "cuid",
    "color",
    "idn-email",
    "iri",
]


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_format_stops_nothing(name: str) -> None:
    text = {"type": "string", "format": name, "maxLength": 5}
    schema = {
        "$defs": {"format": {"anyOf": [text]}},
        "properties": {"format": text, "a": {"type": "array", "items": text}, "b": {"$ref": "#/$defs/format"}},
        "components": {"schemas": {"c": text}},
    }
    assert validate(GrammarSource(GrammarKind.JSON_SCHEMA, json.dumps(schema))).is_valid
    assert name not in json.dumps(followed(schema))


def test_formats_that_are_followed_and_data_stay() -> None:
    schema = {
        "type": "object",
        "properties": {"at": {"type": "string", "format": "date-time"}},
        "const": {"format": "byte"},
        "enum": [{"format": "byte"}],
        "default": {"format": "byte"},
    }
    assert followed(schema) == schema


@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, 1180000000000000123])
@pytest.mark.parametrize("name", ["const", "minimum", "maximum", "exclusiveMinimum", "multipleOf"])
def test_an_integer_that_would_be_rounded_is_refused(name: str, large: int) -> None:
    for schema in ({name: large}, {"items": {name: large}}, {"anyOf": [{"properties": {"a": {name: large}}}]}):
        with pytest.raises(TooLargeError, match=rf"needs {name} .*found {large}"):
            followed(schema)
    found = validate(GrammarSource(GrammarKind.JSON_SCHEMA, json.dumps({"enum": ["a", {"b": [large]}]})))
    assert (found.is_valid, found.found) == (False, large)


def test_integers_that_are_exact_and_other_numbers_stay() -> None:
    schema = {"enum": [2**53, -(2**53), 1e300, 0.1, True], "default": 10**30, "maxLength": 10**30}
    assert followed(schema) == schema


WAYS = {
    "a schema": (GrammarKind.JSON_SCHEMA, "{}"),
    "JSON in rules": (GrammarKind.RULES, 'start: "a" %json {}'),
    "JSON over lines in rules": (GrammarKind.RULES, 'start: "/*" x\nx: %json\n{} "b" // "'),
    "JSON in rules within rules": (GrammarKind.RULES, "start: x\nx: %lark {{\nstart: %json {}\n}}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_the_library_follows_the_same_schemas(way: str) -> None:
    kind, text = WAYS[way]
    with_format = json.dumps({"properties": {"a": {"type": "string", "format": "cuid"}}}, indent=1)
    assert validate(GrammarSource(kind, text.format(with_format))).is_valid
    with_large = json.dumps({"properties": {"a": {"const": 2**53 + 1}}}, indent=1)
    assert validate(GrammarSource(kind, text.format(with_large))).found == 2**53 + 1
    with_many = json.dumps({"properties": {"a": {"maxItems": 5000}}}, indent=1)
    assert validate(GrammarSource(kind, text.format(with_many))).found == 5000
    twice = '{"maxItems": 5000, "const": 1, "const": 2}'.replace("5000", "3")
    assert validate(GrammarSource(kind, text.format(twice))).is_valid


@pytest.mark.parametrize(
    "text", ['start: "%json {\\"format\\": 1}"', "start: /%json 1/ // %json {", 'start: "a" # %json {x']
)
def test_what_only_looks_like_json_in_rules_stays(text: str) -> None:
    assert validate(GrammarSource(GrammarKind.RULES, text)).text == of_lark(text)
