"""JSON schemas in words: types and ranges, as reference pages show them."""

import json
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]


def type_of(schema: Schema) -> str:
    """What a value may be, in Markdown; a ``$ref`` by its name."""
    if "$ref" in schema:
        return f"`{name_of(schema)}`"
    if words := _alternatives(schema):
        return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    kind = str(schema.get("type", "any value"))
    if kind == "array":
        return f"list of {type_of(schema['items'])}" if "items" in schema else "list"
    plain = {"object": "mapping", "boolean": "`true` or `false`", "null": "`null`"}.get(kind, kind)
    return " ".join([plain, *_range(schema)])


def name_of(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def named_in(schema: Schema) -> str | None:
    """Name of the schema that a value, or an item of a list, follows; None: of none, or of several."""
    if "$ref" in schema:
        return name_of(schema)
    parts = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]
    names = {name for part in parts if (name := named_in(part))}
    return names.pop() if len(names) == 1 else None


def code(value: object) -> str:
    """A value as JSON; strings without quotes."""
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return f"`{text}`"


def summary(schema: Schema) -> str:
    """A description's first paragraph on one line, with single backticks."""
    return " ".join(str(schema.get("description", "")).split("\n\n")[0].replace("``", "`").split())


def attributes(schema: Schema) -> dict[str, str]:
    """What a description's ``Attributes:`` say of each field."""
    found: dict[str, list[str]] = {}
    _, _, lines = str(schema.get("description", "")).partition("Attributes:\n")
    for line in lines.splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and not line.startswith(" " * 8) and name.isidentifier():
            found[name] = [text]
        elif found:
            found[[*found][-1]].append(line.strip())
    return {name: " ".join(words).replace("``", "`") for name, words in found.items()}


def _alternatives(schema: Schema) -> list[str]:
    """What a value may be one of, without repetition; empty where the schema names no alternatives."""
    parts = [word for part in schema.get("anyOf", ()) for word in _alternatives(part) or [type_of(part)]]
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return list(dict.fromkeys([*parts, *map(code, values)]))


def _range(schema: Schema) -> list[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return [f"from {low:,} to {high:,}"]
    above = schema.get("exclusiveMinimum")
    words = [f"above {above:,}"] if above is not None else [f"from {low:,}"] if low is not None else []
    return [*words, f"to {high:,}"] if high is not None else words
