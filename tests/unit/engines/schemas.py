"""Fifty JSON schemas of what people ask for, small enough that a random model comes to an end in each."""

from typing import Any

WORD = {"type": "string", "maxLength": 6}
SMALL = {"type": "integer", "minimum": 0, "maximum": 99}


def record(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """An object with these properties alone, all required unless it says which."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False, **more}


def several(items: dict[str, Any], least: int = 0, most: int = 3) -> dict[str, Any]:
    """A list of so many."""
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


_NODE = {"$ref": "#/$defs/node"}
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "null"},
    {"type": "boolean"},
    SMALL,
    {"type": "integer", "minimum": -9, "maximum": 9},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1000},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "integer", "enum": [1, 2, 3]},
    WORD,
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "string", "pattern": "^[A-F]{2}[0-9]{3}$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"enum": ["red", "green", "blue"]},
    {"enum": [1, "one", None, True]},
    {"const": "only"},
    {"const": {"a": [1, 2]}},
    {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
    {"anyOf": [SMALL, {"type": "boolean"}]},
    {"oneOf": [{"const": "a"}, {"const": "b"}]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 7}]},
    several(SMALL),
    several({"type": "boolean"}, 2, 2),
    several({"enum": ["a", "b"]}, 1, 4),
    several(several(SMALL, 1, 2), 1, 2),
    {"type": "array", "prefixItems": [SMALL, WORD], "items": False, "minItems": 2},
    record({}),
    record({"name": WORD}),
    record({"name": WORD, "age": SMALL}),
    record({"name": WORD, "age": SMALL, "alive": {"type": "boolean"}}),
    record({"name": WORD, "age": SMALL}, ["name"]),
    record({"a": SMALL, "b": SMALL, "c": SMALL}, []),
    record({"kind": {"const": "circle"}, "radius": SMALL}),
    {"anyOf": [record({"circle": SMALL}), record({"square": SMALL})]},
    record({"at": record({"x": SMALL, "y": SMALL}), "label": WORD}),
    record({"tags": several({"enum": ["x", "yy", "zzz"]})}),
    record({"people": several(record({"name": WORD, "age": SMALL}), 1, 2)}),
    record({"id": {"type": "string", "pattern": "^[a-z]{3}-[0-9]{2}$"}, "when": {"type": "string", "format": "date"}}),
    record({"maybe": {"anyOf": [WORD, {"type": "null"}]}}),
    record({"deep": record({"deeper": record({"deepest": {"type": "boolean"}})})}),
    record({"matrix": several(several(SMALL, 2, 2), 2, 2)}),
    record({"first name": WORD, "last-name": WORD, 'quoted "name"': SMALL}),
    record({"a/b": {"enum": ["\\", "/"]}}),
    record({"answer": {"enum": ["yes", "no"]}, "why": WORD, "sure": {"type": "number", "minimum": 0, "maximum": 1}}),
    {"$defs": {"node": record({"v": SMALL, "next": {"anyOf": [_NODE, {"type": "null"}]}})}, **_NODE},
    {
        "$defs": {"point": several(SMALL, 2, 2)},
        **record({"from": {"$ref": "#/$defs/point"}, "to": {"$ref": "#/$defs/point"}}),
    },
    {"type": "object", "patternProperties": {"^[a-c]$": SMALL}, "additionalProperties": False, "maxProperties": 2},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 1},
    record({"tool": {"const": "search"}, "arguments": record({"query": WORD, "limit": SMALL}, ["query"])}),
)
