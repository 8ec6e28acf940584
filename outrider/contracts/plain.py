"""Data that crosses between processes once a token."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any


class Plain:
    """Base of frozen dataclasses that travel often: pickled by their fields in turn, without reflecting on each."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """The class, and its arguments in order."""
        cls: Any = type(self)
        return cls, _reader(cls)(self)


@cache  # there are as many as classes
def _reader(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Reads all fields of one class; it has two at least."""
    return attrgetter(*cls.__match_args__)
