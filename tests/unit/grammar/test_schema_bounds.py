"""What JSON schemas may count, repeat and combine before they are compiled."""

from typing import Any

import pytest

from outrider.grammar.repeats import TooLargeError
from outrider.grammar.schema_bounds import check_schema

BILLION = 10**9
COUNTING = ("maxItems", "minItems")
Schema = dict[str, Any]


def nested(schema: Schema) -> dict[str, Schema]:
    """A schema at each place where another one may stand."""
    return {
        "root": schema,
        "property": {"properties": {"a": schema}},
        "property that is called enum": {"properties": {"enum": schema}},
        "pattern property": {"patternProperties": {"^a": schema}},
        "additional": {"additionalProperties": schema},
        "items": {"items": schema},
        "tuple": {"prefixItems": [{}, schema]},
        "older tuple": {"items": [{}, schema]},
        "anyOf": {"anyOf": [{"type": "null"}, schema]},
        "oneOf": {"oneOf": [schema]},
        "allOf": {"allOf": [{}, schema]},
        "not": {"not": schema},
        "if": {"if": schema},
        "definition": {"$defs": {"a": schema}},
        "older definition": {"definitions": {"a": schema}},
        "elsewhere": {"$ref": "#/x~1y/1", "x/y": [{}, schema]},
        "as data, referred to": {"$ref": "#/default", "default": schema},
    }


@pytest.mark.parametrize("keyword", COUNTING)
@pytest.mark.parametrize("place", nested({}))
def test_each_count_is_bounded_wherever_it_stands(keyword: str, place: str) -> None:
    with pytest.raises(TooLargeError, match=f"{keyword} of at most .*found {BILLION}"):
        check_schema(nested({keyword: BILLION})[place])


@pytest.mark.parametrize("keyword", COUNTING)
@pytest.mark.parametrize("count", [1e9, 1e300, float("inf"), 10**400])
def test_counts_are_bounded_in_every_form_of_number(keyword: str, count: float) -> None:
    with pytest.raises(TooLargeError, match=keyword):
        check_schema({keyword: count})


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": f"a{{{BILLION}}}"},
        {"patternProperties": {f"a{{{BILLION}}}": {}}},
        {"x-guidance": {"whitespace_pattern": f" {{{BILLION}}}"}},
        {"x-guidance": {"item_separator": f",{{{BILLION}}}"}},
    ],
)
def test_each_expression_is_bounded(schema: Schema) -> None:
    with pytest.raises(TooLargeError, match="repetitions"):
        check_schema(schema)


def arrays(*counts: int) -> Schema:
    schema: Schema = {"type": "integer"}
    for count in counts:
        schema = {"type": "array", "items": schema, "maxItems": count}
    return schema


def chain(links: int, count: int) -> Schema:
    """Arrays within each other by references."""
    defs = {f"d{i}": {"maxItems": count, "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(links)}
    return {"$ref": "#/$defs/d0", "$defs": defs}


def either(*names: str) -> Schema:
    return {"anyOf": [{"properties": {name: {}}} for name in names]}


DOUBLING = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)} | {"d40": either("a", "b")}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (arrays(1000, 1000, 1000), "arrays within arrays of at most 1000000 items together, found 1000000000"),
        (arrays(*[2] * 30), "arrays within arrays"),
        (chain(25, 2), "arrays within arrays"),
        (chain(1500, 2), "arrays within arrays"),
        ({"properties": {str(i): arrays(4000) for i in range(9)}}, "at most 32768 items of all arrays"),
        ({"type": "array", "prefixItems": [{}] * 40_000}, "at most 32768 items of all arrays"),
        ({"allOf": [either("a", "b", "c")] * 12}, "65536 combinations of anyOf and oneOf"),
        ({"allOf": [{"oneOf": [{}, {}]}] * 1000}, "65536 combinations"),
        ({"$ref": "#/$defs/d0", "$defs": DOUBLING}, "65536 combinations"),
        ({"allOf": [{"pattern": f".*{i}.*"} for i in range(20)]}, "8 patterns and formats of one text"),
        ({"pattern": "a", "allOf": [{"$ref": "#/$defs/p"}] * 8, "$defs": {"p": {"pattern": "b"}}}, "8 patterns"),
    ],
)
def test_products_and_sums_are_bounded(schema: Schema, message: str) -> None:
    with pytest.raises(TooLargeError, match=message):
        check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        arrays(100, 100, 100),
        {"type": "array", "items": {"maxLength": 65_535, "pattern": "^[a-z]{1,100}$"}, "maxItems": 1000},
        {"type": "integer", "minimum": -(2**53), "maximum": BILLION, "multipleOf": BILLION},
        {"enum": [{"maxItems": BILLION}], "default": {"maxLength": BILLION}, "const": BILLION},
        {"properties": {"maxItems": {"type": "integer"}, "$ref": {"type": "string"}}},
        {"anyOf": [{"const": i} for i in range(5_000)]},
        {"maxLength": 2**31 - 1, "minLength": BILLION, "maxProperties": 10**30, "minProperties": 1e300},
        {"pattern": "^.{0,5000}$"},
        {"properties": {"next": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}, "maxItems": 9}}},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#/nowhere", "maxItems": "many", "$defs": [], "properties": 3, "items": None},
        {"$ref": "http://elsewhere/x#/a"},
        {"maxItems": float("nan"), "minItems": True, "maxLength": -5},
        chain(15, 2),
    ],
)
def test_ordinary_schemas_and_odd_ones_are_left_to_the_library(schema: Schema) -> None:
    check_schema(schema)
