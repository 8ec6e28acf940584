"""Ends of JSON values and beginnings of tags in text that comes piece by piece; each character is read once."""

import json
import re
from typing import Any

_IN_STRING, _IN_VALUE = re.compile(r'["\\]'), re.compile(r'["{}\[\]]')
_BETWEEN = re.compile(r"\s*([\[,\]])\s*")
_CHANGE = {"{": 1, "[": 1, "}": -1, "]": -1}
JSON = json.JSONDecoder(parse_constant=int)  # which raises ValueError: NaN and infinities are no JSON


class JsonEnd:
    """Finds the end of a JSON object or list, which the text begins with."""

    def __init__(self) -> None:
        self._depth, self._quoted, self._escaped = 0, False, False

    def end(self, text: str) -> int | None:
        """Read the next text; return where in it the value ends, or None."""
        at = 0
        while at < len(text):
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            found = (_IN_STRING if self._quoted else _IN_VALUE).search(text, at)
            if found is None:
                return None
            at, char = found.end(), found[0]
            if change := _CHANGE.get(char):
                self._depth += change
                if self._depth <= 0:
                    return at
            else:
                self._quoted ^= char == '"'
                self._escaped = char == "\\"
        return None


def parsed(text: str) -> Any:
    """Parse JSON strictly.

    Raises:
        ValueError: it is none, is nested too deeply, or has half a surrogate pair.
    """
    try:
        value = JSON.decode(text)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def elements(text: str) -> list[str]:
    """Elements of a JSON list as they are written.

    Raises:
        ValueError: the text is no list, an empty one, or nested too deeply.
    """
    found, parts = _BETWEEN.match(text), list[str]()
    if found is None or found[1] != "[":
        raise ValueError("needs [ at 0")
    try:
        while found[1] != "]":
            _, end = JSON.raw_decode(text, begins := found.end())
            parts.append(text[begins:end])
            if (found := _BETWEEN.match(text, end)) is None or found[1] == "[":
                raise ValueError(f"needs , or ] at {end}")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if found.end() < len(text):
        raise ValueError(f"needs nothing at {found.end()}")
    return parts


def begun(tag: str, text: str) -> int:
    """Length of the longest prefix of a tag that the text ends with."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)
