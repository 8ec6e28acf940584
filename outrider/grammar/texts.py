"""Convert what users write into grammars in the library's form."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.grammar.gbnf import lark_of_gbnf

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


def ascii_classes(pattern: str) -> str:
    r"""Return a regular expression in which ``\d``, ``\w`` and ``\s`` are ASCII's, as in xgrammar and JSON schemas."""
    return _CLASS_ESCAPE.sub(lambda found: _ASCII.get(found[0], found[0]), pattern)


def of_regex(pattern: str) -> str:
    """Return the grammar of texts that a regular expression matches as a whole."""
    from llguidance import LLMatcher  # noqa: PLC0415 (takes a while)

    return LLMatcher.grammar_from_regex(pattern)


def of_choices(choices: Sequence[str]) -> str:
    """Return the grammar of one of several texts."""
    return of_lark("start: " + " | ".join(map(literal, choices)))


def of_lark(rules: str) -> str:
    from llguidance import LLMatcher  # noqa: PLC0415 (takes a while)

    return LLMatcher.grammar_from_lark(rules)


def lark_of(rules: str) -> str:
    """Return rules in Lark's form, given these or GBNF (llama.cpp's).

    Raises:
        GrammarSyntaxError: they are neither.
    """
    return rules if _LARK.search(rules) else lark_of_gbnf(rules)


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
