"""Parameters of tools where arguments are not one JSON object: each by its own schema, in text or in JSON."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from outrider.contracts.errors import ParameterError
from outrider.grammar.texts import literal
from serve_app.api.openai.tools.formats.base import Tool, in_json, regex_of
from serve_app.api.openai.tools.formats.scanning import parsed
from serve_app.api.service import StructuredLimits

_OBJECT_KEYWORDS = (  # of a whole object, which its parameters one by one cannot be held to
    *("patternProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas"),
    *("allOf", "anyOf", "oneOf", "not", "if", "$ref", "unevaluatedProperties"),
)
_MOST_CHARS = 10_000  # that a schema may count of a text
_TEXT_KEYWORDS = ("pattern", "format")
_MOST_REFERENCES = 16
_MOST_OPTIONS, _MOST_DEPTH = 64, 8  # of a parameter's alternatives; beyond these its types are not looked for
_MOST_SCHEMAS = 256  # that are looked at for one parameter's types
_MOST_BYTES = StructuredLimits().max_bytes
_NOT_IN_NAMES = re.compile(r"[<>\n]")
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


def properties_of(tool: Tool) -> Mapping[str, Any]:
    """Schema of each parameter."""
    found = tool.parameters.get("properties")
    return found if isinstance(found, dict) else {}


def required_of(tool: Tool) -> frozenset[str]:
    """Parameters that a call has to have."""
    found = tool.parameters.get("required")
    return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()


def takes_any(tool: Tool) -> bool:
    """Whether a call may have any parameters: none are described, and none are excluded."""
    return "properties" not in tool.parameters and tool.parameters.get("additionalProperties", True) is True


def bounded(rules: Iterable[str]) -> list[str]:
    """Collect rules while they are made: a request's schemas may have to be repeated in many of them.

    Raises:
        ParameterError: together they are longer than a grammar may be.
    """
    collected, size = list[str](), 0
    for rule in rules:
        size += len(rule.encode(errors="surrogatepass")) + 1
        if size > _MOST_BYTES:
            raise ParameterError("tools", f"at most {_MOST_BYTES} bytes of rules for calls", "more")
        collected.append(rule)
    return collected


def check_object(tool: Tool) -> None:
    """Check that a tool's parameters can be enforced one by one.

    Raises:
        ParameterError: they cannot.
    """
    for keyword in _OBJECT_KEYWORDS:
        if keyword in tool.parameters:
            raise refused(tool, keyword)
    for name in properties_of(tool):
        if _NOT_IN_NAMES.search(name) or not name:
            raise ParameterError(_field(tool), "names of parameters without <, > and line feeds", name)
    if missing := required_of(tool) - set(properties_of(tool)):
        raise ParameterError(_field(tool), "each required parameter among its properties", min(missing))


def refused(tool: Tool, keyword: str) -> ParameterError:
    return ParameterError(
        _field(tool), "a schema without this keyword, which this model's calls cannot be held to", keyword
    )


def _field(tool: Tool) -> str:
    return f"tools.{tool.name}.function.parameters"


def resolved(tool: Tool, schema: Any) -> Any:
    """The schema that a local ``$ref`` names.

    Raises:
        ParameterError: it names none.
    """
    for _ in range(_MOST_REFERENCES):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            return schema
        found: Any = tool.parameters
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if found is None:
            break
        schema = found
    raise refused(tool, "$ref")


def types_of(tool: Tool, schema: Any) -> frozenset[str]:
    """JSON types that a parameter may have; empty: any, or more schemas than are looked at.

    Raises:
        ParameterError: a ``$ref`` names no schema.
    """
    return _types(tool, schema, {}, iter(range(_MOST_SCHEMAS)), 0)


def _types(
    tool: Tool, schema: Any, known: dict[str, frozenset[str]], budget: Iterator[int], depth: int
) -> frozenset[str]:
    """``known``: types by ``$ref``, any while they are looked for; ``budget`` has an item for each schema left."""
    if depth > _MOST_DEPTH or next(budget, None) is None or not isinstance(schema, dict):
        return frozenset()
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return _own_types(tool, schema, known, budget, depth)
    if reference not in known:
        known[reference] = frozenset()
        found = resolved(tool, schema)
        known[reference] = _own_types(tool, found, known, budget, depth) if isinstance(found, dict) else frozenset()
    return known[reference]


def _own_types(
    tool: Tool, schema: Mapping[str, Any], known: dict[str, frozenset[str]], budget: Iterator[int], depth: int
) -> frozenset[str]:
    """Types of a schema that is no reference."""
    for keyword in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(keyword), list):
            types = frozenset[str]()
            for option in options if len(options) <= _MOST_OPTIONS else [None]:
                found = _types(tool, option, known, budget, depth + 1)
                if not found:
                    return frozenset()
                types |= found
            return types
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = schema.get("enum", [schema.get("const")])
        return frozenset(map(_type_of_class, set(map(type, values))))
    kind = schema.get("type")
    several = kind if isinstance(kind, list) else [kind]
    return frozenset(each for each in several if isinstance(each, str))


def _type_of(value: object) -> str:
    return _type_of_class(type(value))


def _type_of_class(kind: type) -> str:
    return "null" if kind is type(None) else _TYPES.get(kind, "string")


def as_json(text: str, types: frozenset[str]) -> str:
    """JSON of a value that was written as text, by its types; text that is none of them is a string."""
    if types == {"string"}:
        return in_json(text)
    bare = text.strip()
    bare = _PYTHON.get(bare, bare) if types else bare
    try:
        found = _type_of(parsed(bare))
    except ValueError:
        return in_json(text)
    fits = not types or found in types or (found == "integer" and "number" in types)
    return bare if fits and found != "string" else in_json(text)


def as_text(value: object) -> str:
    """A value as text: strings as they are, others as JSON."""
    return value if isinstance(value, str) else in_json(value)


def json_symbol(tool: Tool, schema: Any) -> str:
    """Lark symbol of a value in JSON, with the definitions that its references may name."""
    text = json.dumps(schema)
    if isinstance(schema, dict) and '"$ref": ' in text:
        shared = {name: tool.parameters[name] for name in ("$defs", "definitions") if name in tool.parameters}
        text = json.dumps({**schema, **shared})
    return f"%json {text}"


def text_symbols(tool: Tool, schema: Any, closes: str) -> tuple[str, str]:
    """Lark symbols of a value as text with what closes it, and the terminal that they name, if any ("" for none).

    Raises:
        ParameterError: the schema of a string has a keyword that cannot be enforced.
    """
    found, types = resolved(tool, schema), types_of(tool, schema)
    found = found if isinstance(found, dict) else {}
    values = found.get("enum", [found["const"]] if "const" in found else None)
    if isinstance(values, list) and values:
        return f"({' | '.join(literal(as_text(value)) for value in values)}) {literal(closes)}", ""
    if types and "string" not in types:
        return f"{json_symbol(tool, schema)} {literal(closes)}", ""
    for keyword in _TEXT_KEYWORDS if types == {"string"} else ():
        if keyword in found:
            raise refused(tool, keyword)
    least, most = found.get("minLength", 0), found.get("maxLength", "")
    for name, count in (("minLength", least), ("maxLength", most)):
        if name in found and (not isinstance(count, int) or not 0 <= count <= _MOST_CHARS):
            raise ParameterError(f"{_field(tool)}: {name}", f"an integer in 0..{_MOST_CHARS}", count)
    counted = f"{{{least},{most}}}" if types == {"string"} and (least or most != "") else "*"
    ends = regex_of(closes)
    return "", f"/(.|\\n){counted}{ends}/ & ~/(.|\\n)*{ends}(.|\\n)+/"
