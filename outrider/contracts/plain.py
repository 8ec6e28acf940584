"""Data that crosses between processes once a token."""

from typing import Any


class Plain:
    """Base of frozen dataclasses that travel often: pickled by their fields in turn, without reflecting on each."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """The class, and its arguments in order."""
        cls: Any = type(self)
        return cls, tuple([getattr(self, name) for name in cls.__match_args__])
