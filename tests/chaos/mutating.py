"""Messages and bodies that nobody should send, made from sound ones by chance. Pure."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any, TypeVar

_T = TypeVar("_T")

ODD_NUMBERS: tuple[object, ...] = (-1, 0, 2**31, 2**63, -(2**63) - 1, 2**70, 1e308, 1e-320, -0.0, 0.5)
ODD_TEXTS = ("", "\0", "\ud800", "\u202e\u2066", "\U0001f643" * 50, "é" * 3000, "NaN", "../../etc", "'; --", "%s%n")
_DEPTHS = (3, 100, 20_000)
_DEEP = "nested {} times"


def mutated_bytes(rng: Random, data: bytes, other: bytes) -> bytes:
    """Bits flipped, bytes cut off or put in, its end another message's, or a length told that it does not have."""
    kind = rng.randrange(6)
    if kind == 0 and data:
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 3, 8])):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == 1 and data:
        return data[: rng.randrange(len(data))]
    if kind == 2:
        return data + rng.randbytes(rng.randint(1, 9))
    cut = rng.randint(0, len(data))
    if kind == 3:
        return data[:cut] + other[rng.randint(0, len(other)) :]
    if kind == 4:
        return data[:cut] + rng.randbytes(rng.randint(1, 40)) + data[cut:]
    return data[: min(cut, 4)] + b"\xff" * rng.randint(1, 12) + data[min(cut, 4) + 1 :]


def mutated_fields(rng: Random, message: _T, *, types: bool) -> _T:
    """A frozen message with one or two fields that have other values, or with ``types`` values of other types."""
    assert is_dataclass(message), "made of fields"
    names = [field.name for field in fields(message) if field.init]
    chosen = rng.sample(names, min(len(names), rng.choice([1, 1, 2])))
    changes: dict[str, Any] = {name: _odd(rng, getattr(message, name), types=types) for name in chosen}
    return replace(message, **changes)  # type: ignore[type-var]


def _odd(rng: Random, value: object, *, types: bool) -> object:
    """Something else in the place of a value: near it, or of any type at all."""
    if types and rng.random() < 0.3:
        return rng.choice([None, "text", b"bytes", 1.5, -1, (), (None,), [3], {"a": 1}, math.nan, object])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, -value, -1, 0, 2**31, 2**63, 2**70, -(2**63) - 1])
    if isinstance(value, tuple):
        ends: Sequence[object] = rng.choice([(-1,), (2**40,), (2**70,), (0,) * 300, (5, -3), ()])
        return rng.choice([value[:-1], (*value, *ends), (*ends, *value), ends])
    return value


def mutated_body(rng: Random, body: Mapping[str, Any]) -> bytes:
    """A request's body: values of other types, out of range, nested deep, missing or too many; or no JSON at all."""
    content = json.loads(json.dumps(body))
    for _ in range(rng.choice([1, 1, 2])):
        rng.choice(_CHANGES)(rng, content)
    text = json.dumps(content, ensure_ascii=rng.random() < 0.5, allow_nan=True).encode("utf-8", "surrogatepass")
    for depth in _DEPTHS:
        text = text.replace(f'"{_DEEP.format(depth)}"'.encode(), b"[" * depth + b"]" * depth)
    kind = rng.randrange(8)
    if kind == 0:
        return mutated_bytes(rng, text, text)
    if kind == 1:  # a number that JSON has and no machine
        return text.replace(b'"seed": ', b'"seed": ' + b"9" * rng.choice([30, 400, 5000]), 1)
    if kind == 2:
        return b'{"prompt": "twice", ' + text[1:]
    return text


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every value's container and its key or index."""
    found: list[tuple[Any, Any]] = []
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(items):
        found.append((content, key))
        found += _places(value) if len(found) < 200 else []
    return found


def _other_type(rng: Random, content: Any) -> None:
    container, key = rng.choice(_places(content))
    container[key] = rng.choice([None, True, 7, 1.5, "text", [], {}, [None], {"a": []}, [[1]], ["a", 1]])


def _odd_number(rng: Random, content: Any) -> None:
    numbers = [(c, k) for c, k in _places(content) if isinstance(c[k], int | float)]
    if numbers:
        container, key = rng.choice(numbers)
        container[key] = rng.choice([*ODD_NUMBERS, math.nan, math.inf, -math.inf])


def _odd_text(rng: Random, content: Any) -> None:
    texts = [(c, k) for c, k in _places(content) if isinstance(c[k], str)]
    if texts:
        container, key = rng.choice(texts)
        container[key] = rng.choice(ODD_TEXTS)


def _nested(rng: Random, content: Any) -> None:
    """As deep as no writer of JSON goes: marked here, and written where the text is made."""
    container, key = rng.choice(_places(content))
    container[key] = _DEEP.format(rng.choice(_DEPTHS))


def _missing(rng: Random, content: Any) -> None:
    if content:
        del content[rng.choice(list(content))]


def _extra(rng: Random, content: Any) -> None:
    names = [
        "tools",
        "functions",
        "best_of",
        "suffix",
        "response_format",
        "messages",
        "prompt",
        "echo",
        "__class__",
        "",
    ]
    content[rng.choice(names)] = rng.choice([None, 1, "text", [1], {"type": "json"}, [{"role": "user"}]])


def _large(rng: Random, content: Any) -> None:
    content[rng.choice(list(content) or ["prompt"])] = rng.choice(
        ["a b " * 20_000, [7] * 20_000, {str(i): i for i in range(2000)}]
    )


_CHANGES: tuple[Callable[[Random, Any], None], ...] = (
    _other_type,
    _other_type,
    _odd_number,
    _odd_number,
    _odd_text,
    _nested,
    _missing,
    _extra,
    _large,
)
