"""Bounds and constants are followed exactly or refused by name: what the library makes of each is tried."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from outrider.grammar.numbers import check_numbers
from outrider.grammar.repeats import TooLargeError
from outrider.grammar.validating import GrammarKind, GrammarSource, validate

TOKENS = LLTokenizer("byte")
LEAST, MOST = -(2**63) + 1024, 2**63 - 1
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
INTEGERS = sorted(
    {
        sign * (2**power + near)
        for power in (0, 1, 31, 53, 54, 59, 60, 62, 63, 64)
        for near in (-1024, -1, 0, 1)
        for sign in (1, -1)
    }
    | {10**18, 10**18 - 1, 10**18 - 64, -(10**18), 64 - 10**18, 10**17, 10**30, -(10**30), 123456789012345678}
)
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    -2.5,
    0.1,
    1e15,
    1e16,
    1e17,
    -1e17,
    9.2e18,
    1e19,
    -1e19,
    1e308,
    -1e308,
    1e-60,
    1e-100,
]


def writes(schema: dict[str, Any], text: str) -> bool:
    """Whether the library's grammar of a schema has this text."""
    matcher = LLMatcher(TOKENS, LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


def is_taken(schema: dict[str, Any]) -> bool:
    try:
        check_numbers(schema)
    except TooLargeError:
        return False
    return True


def holds(name: str, bound: float, value: int) -> bool:
    return {
        "minimum": value >= bound,
        "maximum": value <= bound,
        "exclusiveMinimum": value > bound,
        "exclusiveMaximum": value < bound,
    }[name]


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_that_is_taken_is_exact(name: str, kind: str) -> None:
    taken = 0
    for bound in [*INTEGERS, *FLOATS]:
        schema = {"type": kind, name: bound}
        if is_taken(schema):
            taken += 1
            whole = int(bound)
            for value in {whole + step for step in (-1025, -1024, -65, -1, 0, 1, 65, 1024)} | {
                5,
                -5,
                10**25,
                -(10**25),
            }:
                if value != 0 or bound != 0:
                    assert writes(schema, str(value)) == holds(name, bound, value), (bound, value)
    assert taken > 20


def test_the_bounds_of_64_bits() -> None:
    assert is_taken({"type": "integer", "minimum": 0, "maximum": MOST})
    assert is_taken({"type": "integer", "minimum": LEAST, "maximum": MOST})
    assert is_taken({"type": "string", "minimum": -(2**63)})
    for schema in (
        {"type": "integer", "minimum": -(2**63)},
        {"type": ["integer", "null"], "minimum": -(2**63)},
        {"minimum": -(2**63)},
        {"type": "integer", "maximum": 2**63},
        {"type": "integer", "maximum": 2**64 - 1},
        {"type": "integer", "maximum": 1e300},
        {"type": "number", "maximum": 2**62},
        {"type": "number", "minimum": 1e308},
        {"type": "number", "minimum": 1e-100},
        {"type": "integer", "exclusiveMinimum": LEAST},
        {"type": "integer", "multipleOf": 2**63},
    ):
        assert not is_taken(schema), schema


@pytest.mark.parametrize("value", [*INTEGERS, *FLOATS])
def test_a_constant_that_is_taken_is_written_as_it_is(value: float) -> None:
    schema = {"const": value}
    if is_taken(schema):
        matcher = LLMatcher(TOKENS, LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
        text = bytes(matcher.compute_ff_tokens()).decode()
        assert float(text) == value, text
        assert isinstance(value, float) or json.loads(text) == value
    else:
        assert abs(value) > 2**53 or value == 1e-60


def test_a_verdict_names_the_keyword_and_what_was_found() -> None:
    verdict = validate(GrammarSource(GrammarKind.JSON_SCHEMA, '{"type": "integer", "minimum": -9223372036854775808}'))
    needed = "minimum from -9223372036854774784 to 999999999999999999 that a double holds, or none"
    assert (verdict.needed, verdict.found) == (needed, -(2**63))
    constant = validate(GrammarSource(GrammarKind.JSON_SCHEMA, '{"const": -9223372036854775808.0}'))
    assert constant.needed.startswith("const of numbers that a double holds")
