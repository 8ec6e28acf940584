"""Bound on white space in JSON whose grammar lets it stand anywhere.

The library takes white space between the parts of JSON piece after piece, so no pattern bounds it: a model that writes
nothing else would go on until ``max_tokens``. A run may be as long as the longest text of the request's own pattern.
Without one it may have a line break and eight columns for each open bracket, which is more than pretty printers write.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outrider.grammar.repeats import longest

Mask = npt.NDArray[np.uint32]
LINE_BREAK = 2  # bytes of the longest
INDENTATION = 8  # columns for each open bracket
_BLANKS = b" \t\n\r"
_OPENING, _CLOSING = b"[{", b"]}"
_QUOTE, _ESCAPE = ord('"'), ord("\\")
_MASK_BITS = 32


class JsonPlace(NamedTuple):
    """Place in a JSON text that may be cut anywhere."""

    blanks: int = 0  # of the white space that it is behind
    depth: int = 0  # open brackets
    quoted: bool = False  # within a string
    escaped: bool = False  # behind a backslash there

    def after(self, content: bytes) -> "JsonPlace":
        """Return the place behind some more bytes."""
        blanks, depth, quoted, escaped = self
        for byte in content:
            if quoted:
                quoted, escaped = escaped or byte != _QUOTE, not escaped and byte == _ESCAPE
            elif byte in _BLANKS:
                blanks += 1
            else:
                blanks, quoted = 0, byte == _QUOTE
                depth += (byte in _OPENING) - (byte in _CLOSING)
        return JsonPlace(blanks, depth, quoted, escaped)


class BlankTokens:
    """How many bytes of white space each token of a vocabulary begins with."""

    def __init__(self, bytes_of: Callable[[int], bytes], vocab_size: int) -> None:
        self.bytes_of = bytes_of
        counts = (len(content) - len(content.lstrip(_BLANKS)) for content in map(bytes_of, range(vocab_size)))
        self._leading = np.fromiter(counts, dtype=np.uint16, count=vocab_size)
        self._most = int(self._leading.max(initial=0))
        self._beyond: dict[int, Mask] = {}

    def beyond(self, left: int) -> Mask | None:
        """Return ``[words]``, the tokens that begin with more white space than is left; None: no token does."""
        if left >= self._most:
            return None
        if (known := self._beyond.get(left)) is None:
            bits = np.packbits(self._leading > left, bitorder="little")
            known = np.zeros(-(-len(self._leading) // _MASK_BITS), dtype="<u4")
            known.view(np.uint8)[: len(bits)] = bits
            self._beyond[left] = known
        return known


@dataclass(frozen=True, slots=True)
class BlankBound:
    """Bound of one grammar: of at most ``most`` bytes in a run, or by the depth of brackets if that is None."""

    tokens: BlankTokens
    most: int | None

    def forbidden(self, place: JsonPlace) -> Mask | None:
        """Return ``[words]``, the tokens that begin with too much white space for a place; None: no token does."""
        if place.quoted:
            return None
        most = LINE_BREAK + INDENTATION * place.depth if self.most is None else self.most
        return self.tokens.beyond(max(most - place.blanks, 0))

    def after(self, place: JsonPlace, token_id: int) -> JsonPlace:
        """Return the place behind one more token."""
        return place.after(self.tokens.bytes_of(token_id))


def blank_bound(text: str, tokens: BlankTokens) -> BlankBound | None:
    """Return the bound of a grammar in the library's form; None unless it is JSON with white space anywhere.

    Rules have none: what of them is JSON, only the library knows. Their JSON is compact (``texts.compact``).
    """
    try:
        (grammar,) = json.loads(text)["grammars"]
        schema = grammar["json_schema"]
    except (ValueError, KeyError, TypeError):
        return None  # the library reports what is no grammar
    options = schema.get("x-guidance") if isinstance(schema, dict) else None
    options = options if isinstance(options, dict) else {}
    pattern = options.get("whitespace_pattern")
    if schema is None or not (isinstance(pattern, str) or options.get("whitespace_flexible", True)):
        return None
    return BlankBound(tokens, longest(pattern) if isinstance(pattern, str) else None)
