"""JSON schemas as the grammar library follows them: without unknown formats, and without integers it would round."""

from collections.abc import Mapping
from typing import Any

from outrider.grammar.repeats import TooLargeError
from outrider.grammar.schema_bounds import DATA, MAPS

_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown")
)
_EXACT = 2**53  # up to which a double has every integer
_COMPARED = frozenset(("const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))


def followed(schema: Any) -> Any:
    """Return a schema without the formats that the library does not know.

    They must not stop anything (JSON Schema 2020-12, validation, 7.2.3).

    Raises:
        TooLargeError: an integer that the answer has to have or is bounded by is beyond 2**53.
    """
    if isinstance(schema, list):
        return [followed(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = dict[str, Any]()
    for name, value in schema.items():
        if name == "format" and isinstance(value, str) and value not in _FORMATS:
            continue
        if name in _COMPARED:
            _check(value)
            kept[name] = value
        elif name in MAPS and isinstance(value, Mapping):
            kept[name] = {key: followed(each) for key, each in value.items()}
        else:
            kept[name] = value if name in DATA else followed(value)
    return kept


def _check(value: object) -> None:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _check(each)
    elif isinstance(value, int) and abs(value) > _EXACT:
        raise TooLargeError(f"integers from -{_EXACT} to {_EXACT}, or texts in their place", value)
