"""Report problems of a configuration in one form: pydantic finds them, the JSON schema says what was needed."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from outrider.contracts.errors import ConfigError

_MOST_TOLD = 16  # problems of one source: each names it, and whatever is known at its place
_NOTHING: Mapping[str, str] = {}
_UNKNOWN = frozenset({"unexpected_keyword_argument", "invalid_key"})


class ConfigFileError(ConfigError):
    """All problems of one source of configuration; the inherited fields are those of the first."""

    def __init__(self, problems: tuple[ConfigError, ...], source: str) -> None:
        super().__init__(problems[0].field, problems[0].needed, problems[0].found)
        self.problems, self.source = problems, source

    def __str__(self) -> str:
        lines = [f"{problem} (in {self.source})" for problem in self.problems[:_MOST_TOLD]]
        more = len(self.problems) - _MOST_TOLD
        return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)

    def __reduce__(self) -> tuple[type, Any]:
        """Pickle by constructor arguments, so that the error crosses process boundaries."""
        return type(self), (self.problems, self.source)


def explain(
    error: ValidationError, schema: dict[str, Any], gone: Mapping[str, str] = _NOTHING
) -> tuple[ConfigError, ...]:
    """Return all problems that pydantic found, each mistake once; ``schema`` is of what was validated.

    ``gone``: what became of keys of earlier versions, by their path without indices, as in ``speculation.arms``.
    """
    found = error.errors(include_url=False)
    inner = {details["loc"][:depth] for details in found for depth in range(len(details["loc"]))}
    misspelt = {(*each["loc"][:-1], *_meant(each["loc"], schema)) for each in found if each["type"] in _UNKNOWN}
    said_already = {"too_short": inner, "missing": misspelt}  # a list whose items are wrong is too short to pydantic
    kept = (each for each in found if each["loc"] not in said_already.get(each["type"], ()))
    return tuple(_problem(each, schema, gone) for each in kept)


def _problem(details: Mapping[str, Any], schema: dict[str, Any], gone: Mapping[str, str]) -> ConfigError:
    location, kind = details["loc"], details["type"]
    if kind == "value_error":  # raised by a __post_init__ of the schema
        inner: ConfigError = details["ctx"]["error"]
        return ConfigError(_dotted((*location, inner.field)), inner.needed, inner.found)
    if kind in _UNKNOWN:
        known = list(_node(schema, location[:-1])["properties"])
        if fate := gone.get(".".join(str(part) for part in location if not isinstance(part, int))):
            hint = f"; {location[-1]} {fate}"
        else:
            hint = "".join(f"; did you mean {close}?" for close in _meant(location, schema))
        return ConfigError(_dotted(location[:-1]), f"known keys ({', '.join(known)}{hint})", location[-1])
    if location[-1:] == ("[key]",):
        return ConfigError(_dotted(location[:-2]), "keys that are non-empty text", details["input"])
    found = None if kind == "missing" else details["input"]
    return ConfigError(_dotted(location), _needed(_node(schema, location)), found)


def _meant(location: Sequence[str | int], schema: dict[str, Any]) -> list[str]:
    return get_close_matches(str(location[-1]), list(_node(schema, location[:-1])["properties"]), n=1)


def _dotted(location: Sequence[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "configuration"


def _node(schema: dict[str, Any], location: Sequence[str | int]) -> dict[str, Any]:
    """Return the part of the JSON schema that describes the value at ``location``."""
    node = schema
    for part in (None, *location):
        if part is not None:
            node = next((choice for choice in node.get("anyOf", ()) if "items" in choice), node)  # an optional list
            inner = node["properties"][part] if "properties" in node else None
            node = inner or node.get("items") or node["additionalProperties"]
        node = next((choice for choice in node.get("anyOf", ()) if "$ref" in choice), node)  # an optional mapping
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return node


def _needed(node: Mapping[str, Any]) -> str:
    """Describe a JSON schema node: type and range, choices, or keys."""
    if "anyOf" in node:
        return " or ".join(_needed(choice) for choice in node["anyOf"])
    if "enum" in node or "const" in node:
        return f"one of {', '.join(node.get('enum', [node.get('const')]))}"
    if node["type"] in {"integer", "number"}:
        article = "an" if node["type"] == "integer" else "a"
        low = f"({node['exclusiveMinimum']}" if "exclusiveMinimum" in node else f"[{node['minimum']}"
        return f"{article} {node['type']} in {low}, {node['maximum']}]"
    if node["type"] == "string":
        return str(node.get("description", "non-empty text"))
    if node["type"] == "object":
        return f"a mapping of {', '.join(node['properties'])}" if "properties" in node else "a mapping"
    return "a list" if node["type"] == "array" else str(node["type"])
