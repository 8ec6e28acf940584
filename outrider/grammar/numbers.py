"""Numbers in JSON schemas that the grammar library follows exactly; others are refused by their keyword.

The library reads numbers as doubles, bounds of integers as 64 bits of these, and writes bounds as decimals. What it
does with each was tried: it rounds ``2**53 + 1`` and ``1e-60``, cannot write the range from ``-2**63``, takes ``2**64``
for ``2**63 - 1`` and an exclusive bound from ``2**53`` on for an inclusive one, and overflows its stack at a ``const``
of ``-2**63``.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any

from outrider.grammar.repeats import TooLargeError

_EXACT = 2**53  # up to which a double has every integer
_LEAST_64_BITS = 2**63 - 1024  # the largest magnitude of a double below 2**63
_OPEN_ENDED = 10**18  # a range without an end is written by the number of digits: 18 at most
_LARGEST_POWER = 308  # of ten, that a double has
_SMALLEST = 1e-80  # a decimal of more places is nested too deeply
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def check_numbers(schema: Mapping[str, Any]) -> None:
    """Check one schema's numbers, without its parts; one rounded, or not followed, is a ``TooLargeError``."""
    for name in ("const", "enum"):
        for number in _numbers(schema.get(name)):
            if not _is_written(number):
                needed = f"{name} of numbers that a double holds (integers from -{_EXACT} to {_EXACT}: all), or texts"
                raise TooLargeError(needed, number)
    kinds = schema.get("type", "number")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    for name in _BOUNDS:
        value = schema.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if "number" in kinds and not _bounds_numbers(value):
            needed = f"{name} that a double holds, of at most 18 digits before and 80 behind the point, or none"
            raise TooLargeError(needed, value)
        if "integer" in kinds and not _bounds_integers(name, value):
            raise TooLargeError(f"{name} {_range_of(name)} that a double holds, or none", value)
    factor = schema.get("multipleOf")
    if (isinstance(factor, int) and abs(factor) > _EXACT) or (isinstance(factor, float) and not isfinite(factor)):
        raise TooLargeError(f"multipleOf up to {_EXACT}", factor)


def _range_of(name: str) -> str:
    if name.startswith("exclusive"):
        return f"from -{_EXACT - 1} to {_EXACT - 1}"
    low, high = (_LEAST_64_BITS, _OPEN_ENDED - 1) if name == "minimum" else (_OPEN_ENDED - 1, 2**63 - 1)
    return f"from -{low} to {high}"


def _numbers(value: object) -> Iterator[int | float]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _is_written(value: float) -> bool:
    """Whether the library writes just this value: integers of 64 bits by their digits, others as decimals."""
    if value == -(2**63):
        return False
    return _held(value, as_decimal=abs(value) >= 2**63)


def _bounds_integers(name: str, value: float) -> bool:
    if abs(value) < _EXACT:
        return _held(value)
    if name.startswith("exclusive"):
        return False
    if name == "maximum" and value == 2**63 - 1 and isinstance(value, int):
        return True  # of all 64 bits
    open_ended = value if name == "minimum" else -value
    return -_LEAST_64_BITS <= open_ended < _OPEN_ENDED and _held(value)


def _bounds_numbers(value: float) -> bool:
    small = value != 0 and abs(value) < _SMALLEST
    return abs(value) < _OPEN_ENDED and not small and _held(value, as_decimal=True)


def _held(value: float, *, as_decimal: bool = False) -> bool:
    """Whether the library reads this value; ``as_decimal``: and its shortest decimal is the same number."""
    try:
        rounded = float(value)
    except OverflowError:
        return False
    if isinstance(value, float):
        return isfinite(value) and _is_read(value)
    return rounded == value and (not as_decimal or Decimal(repr(rounded)) == value)


def _is_read(value: float) -> bool:
    """Whether the library reads a decimal as its nearest double: it multiplies its digits by a power of ten."""
    _, digits, exponent = Decimal(repr(abs(value))).as_tuple()
    whole, power = float(int("".join(map(str, digits)))), int(exponent)
    return abs(power) <= _LARGEST_POWER and abs(value) == (
        whole * float(f"1e{power}") if power >= 0 else whole / float(f"1e{-power}")
    )
