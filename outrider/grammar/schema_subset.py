"""JSON schemas as the grammar library follows them: within their bounds, and without unknown formats."""

from collections.abc import Mapping
from typing import Any

from outrider.grammar.schema_bounds import DATA, MAPS, check_schema

_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown")
)


def followed(schema: Any) -> Any:
    """Return a schema as the library can follow it; all pass here. Beyond a bound it is a ``TooLargeError``."""
    check_schema(schema)
    return _known(schema)


def _known(schema: Any) -> Any:
    """Return a schema without formats that nobody knows.

    They must not stop anything (JSON Schema 2020-12, validation, 7.2.3).
    """
    if isinstance(schema, list):
        return [_known(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = dict[str, Any]()
    for name, value in schema.items():
        if name == "format" and isinstance(value, str) and value not in _FORMATS:
            continue
        if name in MAPS and isinstance(value, Mapping):
            kept[name] = {key: _known(each) for key, each in value.items()}
        else:
            kept[name] = value if name in DATA else _known(value)
    return kept
