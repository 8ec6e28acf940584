"""Bounds on a JSON text before it is parsed: parsers allocate 64 to 250 bytes for every two or three bytes of it.

Counts the marks that begin a value, on the raw bytes. Only a text with too many of them is checked for marks within
strings, as a long prompt may have many commas. Depth and length of numbers are bounded by the parser (200 levels, 4,300
digits).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from serve_app.api.http_errors import BodyTooLargeError

# Measured with 4 MiB of each: 0.1 to 1.8 us and 64 to 250 bytes for an object, list or key; 0.02 to 0.09 us and 8 to
# 40 bytes for another value. At these bounds a body is parsed within 50 ms, which hold Python's lock.
MAX_STRUCTURE = 50_000
MAX_VALUES = 400_000
_MARKS = (b"[", b"{", b":", b",")
_SHORT_BYTES = 2**12  # numpy counts longer texts faster
_CHUNK_BYTES = 2**18


@dataclass(frozen=True, slots=True)
class JsonSize:
    """Upper bounds of the objects and values a parser makes of a text."""

    structure: int = 0  # objects, lists and keys
    values: int = 0  # in lists and objects

    def __add__(self, other: "JsonSize") -> "JsonSize":
        return JsonSize(self.structure + other.structure, self.values + other.values)


def most_values(context_tokens: int) -> int:
    """Limit of values in a body: admits two prompts of token ids that fill the context, however long it is."""
    return max(MAX_VALUES, 2 * context_tokens)


def check_json_size(texts: Sequence[bytes], max_values: int, what: str = "a body") -> JsonSize:
    """Count values of all texts together before parsing; some 5 ms for 4 MiB, 50 ms if strings have to be told apart.

    Raises:
        BodyTooLargeError: more objects, lists and keys than ``MAX_STRUCTURE``, or more values than ``max_values``.
    """
    size = sum(map(_counted, texts), JsonSize())
    if size.structure > MAX_STRUCTURE or size.values > max_values:
        size = sum((_counted(chunk) for text in texts for chunk in _outside_strings(text)), JsonSize())
    if size.structure > MAX_STRUCTURE:
        raise BodyTooLargeError(
            f"needs {what} of at most {MAX_STRUCTURE} objects, lists and keys, found {size.structure}; send several "
            "requests, or less"
        )
    if size.values > max_values:
        raise BodyTooLargeError(
            f"needs {what} of at most {max_values} values, found {size.values}; send several requests, or prompts as "
            "texts instead of token ids"
        )
    return size


def _counted(text: bytes) -> JsonSize:
    if len(text) < _SHORT_BYTES:
        lists, objects, keys, commas = map(text.count, _MARKS)
    else:
        marks = np.frombuffer(text, np.uint8)
        lists, objects, keys, commas = (int(np.count_nonzero(marks == ord(mark))) for mark in _MARKS)
    return JsonSize(lists + objects + keys, lists + objects + commas)


def _outside_strings(text: bytes) -> Iterator[bytes]:
    """Yield the text in chunks, with the contents of strings zeroed."""
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")  # now each quote begins or ends a string
    within = np.uint8(0)
    for at in range(0, len(bare), _CHUNK_BYTES):
        chunk = np.frombuffer(bare, np.uint8, min(_CHUNK_BYTES, len(bare) - at), at)
        inside = np.bitwise_xor.accumulate((chunk == ord('"')).view(np.uint8)) ^ within
        within = inside[-1]
        yield np.where(inside, np.uint8(0), chunk).tobytes()
