"""Bounds on counts, repetitions and combinations in a JSON schema, checked before anything is compiled.

Each subschema is visited once, and references are followed without being unfolded: linear in the schema's size. What
each bound prevents, and what the library builds lazily, was measured (docs/design/0068-bounded-grammar-compilation.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.grammar.numbers import check_numbers
from outrider.grammar.repeats import MAX_NESTED_REPEATS, TooLargeError, check_count, check_regex, postorder

MAX_COUNT = 4_096  # items of one array, which are built one by one; lengths and numbers of properties are built lazily
MAX_ITEMS = 32_768  # items of all arrays, built one by one at 1.2 KiB and 5 us each
MAX_ALTERNATIVES = 65_536  # of anyOf and oneOf within allOf: each combination is tried
MAX_PATTERNS = 8  # of one text: the time to find out whether any text matches all doubles with each

_COUNTS = ("maxItems", "minItems")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
DATA = frozenset(("enum", "const", "default", "examples", "required", "title", "description"))
_ITEMS = frozenset(("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"))
_SPACING = ("whitespace_pattern", "item_separator", "key_separator")
_ROOT = "#"


@dataclass(frozen=True, slots=True)
class _Size:
    """Size of a schema in each of the bounded respects."""

    items: int = 1  # product of item counts of nested arrays
    alternatives: int = 1
    patterns: int = 0


_NOTHING = _Size()


class _SchemaBounds:
    def __init__(self, document: object) -> None:
        self._document = document
        self._schemas: dict[int, object] = {}  # by id(), as dicts have no hash
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
        """Yield a schema's parts, and what it refers to."""
        schema = self._schemas[known]
        if isinstance(schema, dict):
            yield from (self._known(child) for _, child in _children(schema))
            yield self._known(self._referred(schema))

    def _referred(self, schema: Mapping[str, Any]) -> object:
        reference = schema.get("$ref")
        return _resolved(self._document, reference) if isinstance(reference, str) else None

    def _size(self, schema: Mapping[str, Any]) -> _Size:
        """Return the size of a schema whose parts have theirs, or lead back to it."""
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
        check_numbers(schema)
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
    """Refuse a schema that counts, repeats or combines too much; it must be plain data of at most 64 nested brackets.

    Raises:
        TooLargeError: a bound is exceeded.
    """
    _SchemaBounds(document).check()


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield subschemas with their keywords; values that are not schemas may be among them."""
    for name, value in schema.items():
        if name in MAPS:
            yield from ((name, child) for child in _mapping(value).values())
        elif isinstance(value, dict) and name not in DATA:
            yield name, value
        elif isinstance(value, list) and name not in DATA:
            yield from ((name, child) for child in value)


def _resolved(document: object, pointer: str) -> object:
    """Resolve a JSON pointer (RFC 6901) within a document; None if it leads nowhere."""
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
    """Return the number of an array's own items that are built one by one."""
    counts = [count for name in _COUNTS if isinstance(count := schema.get(name), int)]
    listed = [value for name in ("prefixItems", "items") if isinstance(value := schema.get(name), list)]
    return max([*counts, *map(len, listed)], default=0)


def _nested_items(schema: Mapping[str, Any], below: list[tuple[str, _Size]], referred: _Size) -> int:
    items = max((size.items for name, size in below if name in _ITEMS), default=1) * max(_items(schema), 1)
    return max([items, referred.items, *(size.items for name, size in below if name not in _ITEMS)])


def _alternatives(below: list[tuple[str, _Size]], referred: _Size) -> int:
    """Return in how many ways a value may match: anyOf and oneOf add their alternatives, allOf multiplies them."""
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
