import json

import pytest

from outrider.grammar.repeats import TooLargeError
from outrider.grammar.schema_subset import followed
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
        with pytest.raises(TooLargeError, match=r"needs integers from -9007199254740992 to 9007199254740992"):
            followed(schema)
    found = validate(GrammarSource(GrammarKind.JSON_SCHEMA, json.dumps({"enum": ["a", {"b": [large]}]})))
    assert (found.is_valid, found.found) == (False, large)


def test_integers_that_are_exact_and_other_numbers_stay() -> None:
    schema = {"enum": [2**53, -(2**53), 1e300, 0.1, True], "default": 10**30, "maxLength": 10**30}
    assert followed(schema) == schema
