"""Bounds on what a JSON schema counts, repeats and combines, before anything is compiled of it.

Each schema in it is looked at once, references are followed without being unfolded: linear in its size. What each bound
keeps away, and what the library builds lazily, was measured (docs/design/0068-bounded-grammar-compilation.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.grammar.repeats import (
    MAX_NESTED_REPEATS,
    TooLargeError,
    check_count,
    check_regex,
    postorder,
)

MAX_COUNT = 4_096  # of one array's items, built one by one; lengths and numbers of properties are built lazily
MAX_ITEMS = 32_768  # of all arrays together: built one by one, 1.2 KiB and 5 us each
MAX_ALTERNATIVES = 65_536  # of anyOf and oneOf in an allOf: each combination is tried
MAX_PATTERNS = 8  # that one text has to match: the time to find out whether any does doubles with each

_COUNTS = ("maxItems", "minItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_DATA = frozenset(("enum", "const", "default", "examples", "required", "title", "description"))
_ITEMS = frozenset(("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"))
_SPACING = ("whitespace_pattern", "item_separator", "key_separator")
_ROOT = "#"


@dataclass(frozen=True, slots=True)
class _Size:
    """What a schema amounts to."""

    items: int = 1  # array items within each other
    alternatives: int = 1
    patterns: int = 0


_NOTHING = _Size()


class _SchemaBounds:
    def __init__(self, document: object) -> None:
        self._document = document
        self._schemas: dict[int, object] = {}  # by identity
        self._sizes: dict[int, _Size] = {}  # likewise
        self._items = 0

    def check(self) -> None:
        for known in postorder([self._known(self._document)], self._parts):
            schema = self._schemas[known]
            if isinstance(schema, dict) and schema:
                self._sizes[known] = self._size(schema)

    def _known(self, schema: object) -> int:
        self._schemas[id(schema)] = schema
        return id(schema)

    def _parts(self, known: int) -> Iterator[int]:
        """What a schema consists of, what it refers to included."""
        schema = self._schemas[known]
        if isinstance(schema, dict):
            yield from (self._known(child) for _, child in _children(schema))
            yield self._known(self._referred(schema))

    def _referred(self, schema: Mapping[str, Any]) -> object:
        reference = schema.get("$ref")
        return _resolved(self._document, reference) if isinstance(reference, str) else None

    def _size(self, schema: Mapping[str, Any]) -> _Size:
        """Of a schema whose parts are known, or lead back to it."""
        self._check_own(schema)
        below = [(name, self._sizes.get(id(child), _NOTHING)) for name, child in _children(schema)]
        referred = self._sizes.get(id(self._referred(schema)), _NOTHING)
        size = _Size(
            items=_nested_items(schema, below, referred),
            alternatives=_alternatives(below, referred),
            patterns=_patterns(schema, below, referred),
        )
        if size.items > MAX_NESTED_REPEATS:
            raise TooLargeError(f"arrays within arrays of at most {MAX_NESTED_REPEATS} items together", size.items)
        if size.alternatives > MAX_ALTERNATIVES:
            raise TooLargeError(f"at most {MAX_ALTERNATIVES} combinations of anyOf and oneOf", size.alternatives)
        if size.patterns > MAX_PATTERNS:
            raise TooLargeError(f"at most {MAX_PATTERNS} patterns and formats of one text", size.patterns)
        return size

    def _check_own(self, schema: Mapping[str, Any]) -> None:
        for name in _COUNTS:
            if isinstance(count := schema.get(name), int | float):
                check_count(name, count, MAX_COUNT)
        self._items += _items(schema)
        if self._items > MAX_ITEMS:
            raise TooLargeError(f"at most {MAX_ITEMS} items of all arrays together", self._items)
        expressions = [schema.get("pattern"), *_mapping(schema.get("patternProperties"))]
        expressions += [_mapping(schema.get("x-guidance")).get(name) for name in _SPACING]
        for expression in expressions:
            if isinstance(expression, str):
                check_regex(expression)


def check_schema(document: object) -> None:
    """Refuse a schema, of plain data at most 64 brackets deep, that counts, repeats or combines too much.

    Raises:
        TooLargeError: it does.
    """
    _SchemaBounds(document).check()


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The schemas in a schema, each with the keyword it stands under; other data is told apart where it matters."""
    for name, value in schema.items():
        if name in _MAPS:
            yield from ((name, child) for child in _mapping(value).values())
        elif isinstance(value, dict) and name not in _DATA:
            yield name, value
        elif isinstance(value, list) and name not in _DATA:
            yield from ((name, child) for child in value)


def _resolved(document: object, pointer: str) -> object:
    """What a reference leads to by a JSON pointer (RFC 6901) within a document; None if nothing."""
    found: Any = document if pointer.startswith(_ROOT) else None
    for part in pointer.removeprefix(_ROOT).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 9:
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found


def _items(schema: Mapping[str, Any]) -> int:
    """How many items of its own an array has that are built one by one."""
    counts = [count for name in _COUNTS if isinstance(count := schema.get(name), int)]
    listed = [value for name in ("prefixItems", "items") if isinstance(value := schema.get(name), list)]
    return max([*counts, *map(len, listed)], default=0)


def _nested_items(schema: Mapping[str, Any], below: list[tuple[str, _Size]], referred: _Size) -> int:
    items = max((size.items for name, size in below if name in _ITEMS), default=1) * max(_items(schema), 1)
    return max([items, referred.items, *(size.items for name, size in below if name not in _ITEMS)])


def _alternatives(below: list[tuple[str, _Size]], referred: _Size) -> int:
    """How many ways a value has to fulfil a schema: those of anyOf and of oneOf add up, those of allOf multiply."""
    product = referred.alternatives
    for keyword in ("anyOf", "oneOf"):
        product *= max(sum(size.alternatives for name, size in below if name == keyword), 1)
    for name, size in below:
        product = min(product * size.alternatives, 10**30) if name == "allOf" else product
    return product


def _patterns(schema: Mapping[str, Any], below: list[tuple[str, _Size]], referred: _Size) -> int:
    own = sum(isinstance(schema.get(name), str) for name in ("pattern", "format"))
    together = sum(size.patterns for name, size in below if name == "allOf")
    either = sum(
        max((size.patterns for name, size in below if name == keyword), default=0) for keyword in ("anyOf", "oneOf")
    )
    return own + together + either + referred.patterns


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
