"""Fast pickling of data that crosses processes once a token."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any


class Plain:
    """Base of frozen dataclasses that are pickled as a constructor call: class and fields in order, no reflection."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        cls: Any = type(self)
        return cls, _reader(cls)(self)


@cache  # one entry per class
def _reader(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return a reader of all fields of a class. It needs two at least: ``attrgetter`` of one returns no tuple."""
    return attrgetter(*cls.__match_args__)
