"""Convert what users write into grammars in the library's form."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_CLASS_ESCAPE = re.compile(r"\\.", re.DOTALL)
_ASCII = {  # classes of their own, as a class may have others in it
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
    r"\s": r"[ \t\n\r\f\v]",
    r"\S": r"[^ \t\n\r\f\v]",
}
ANY_OBJECT = '{"type": "object"}'
_LARK = re.compile(r"^[^\S\n]*(?:%llguidance\b|start\s*:)", re.MULTILINE)  # the library's own test is quadratic in time


def of_json_schema(
    schema: str | Mapping[str, object], *, flexible: bool = True, whitespace_pattern: str | None = None
) -> str:
    """Return the grammar of JSON that a schema describes.

    Args:
        schema: or its JSON text.
        flexible: whether whitespace is allowed wherever JSON allows it.
        whitespace_pattern: a regular expression of the allowed whitespace, instead.

    Raises:
        ValueError: the text is not JSON.
    """
    from llguidance import LLMatcher  # noqa: PLC0415 (takes a while)

    options: Any = {"whitespace_flexible": flexible}
    if whitespace_pattern is not None:
        options["whitespace_pattern"] = whitespace_pattern
    return LLMatcher.grammar_from_json_schema(schema if isinstance(schema, str) else dict(schema), defaults=options)


# JSON within other text is spaced as by ``json.dumps``, or not at all: its white space could not be bounded there
# (``outrider.grammar.blanks``).
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}


def compact(schema: Any) -> Any:
    """Return a schema for JSON that is compact, unless the schema itself says how it is spaced."""
    own = schema.get("x-guidance", {}) if isinstance(schema, dict) else None
    return {**schema, "x-guidance": {**_COMPACT, **own}} if isinstance(own, dict) else schema


def ascii_classes(pattern: str) -> str:
    r"""Return a regular expression in which ``\d``, ``\w`` and ``\s`` are ASCII's, as in xgrammar and JSON schemas."""
    return _CLASS_ESCAPE.sub(lambda found: _ASCII.get(found[0], found[0]), pattern)


def of_regex(pattern: str) -> str:
    """Return the grammar of texts that a regular expression matches as a whole."""
    from llguidance import LLMatcher  # noqa: PLC0415 (takes a while)

    return LLMatcher.grammar_from_regex(pattern)


def of_choices(choices: Sequence[str]) -> str:
    return of_lark("start: " + " | ".join(map(literal, choices)))


def of_lark(rules: str) -> str:
    from llguidance import LLMatcher  # noqa: PLC0415 (takes a while)

    return LLMatcher.grammar_from_lark(rules)


def is_lark(rules: str) -> bool:
    """Whether rules are meant to be Lark's; else they are GBNF (llama.cpp's) if anything."""
    return _LARK.search(rules) is not None


def shown_widths(pattern: str) -> list[int]:
    """Return how many characters the library shows for each of a pattern's, whose classes became ASCII's."""
    widths = list[int]()
    for part in re.finditer(r"\\.|.", pattern, re.DOTALL):
        shown = _ASCII.get(part[0], part[0])
        widths += [len(shown) + (part[0] in "\n/"), *[0] * (len(part[0]) - 1)]
    return widths


def literal(text: str) -> str:
    """Return a text as a literal of Lark rules."""
    return json.dumps(text, ensure_ascii=False)


def nesting(text: str) -> int:
    """Return how deep brackets are nested outside quotes: an upper bound for JSON."""
    depth = deepest = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            quoted, escaped = escaped or char != '"', not escaped and char == "\\"
        elif char == '"':
            quoted = True
        elif char in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]})":
            depth -= 1
    return deepest
