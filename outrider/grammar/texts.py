"""Convert what users write into grammars in the library's form."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

ANY_OBJECT = '{"type": "object"}'
_LARK = re.compile(r"^[^\S\n]*(?:%llguidance\b|start\s*:)", re.MULTILINE)  # the library's own test is quadratic in time
_ESCAPED_HYPHEN = re.compile(r"(\\\\)|\\-")  # in a class: llama.cpp takes it, the library's converter does not


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
        Exception: they are neither; of any type.
    """
    from llguidance.gbnf_to_lark import gbnf_to_lark  # noqa: PLC0415 (takes a while)

    if _LARK.search(rules):
        return rules
    return gbnf_to_lark(_ESCAPED_HYPHEN.sub(lambda found: found[1] or "\\x2D", rules))


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
