"""JSON in parts: a long list is kept as JSON, piece by piece, until the value that it is part of is written."""

import json
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Written:
    """A list of which only the JSON is kept."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def add(self, items: Iterable[str]) -> None:
        """Append the JSON of one or more items, in parts."""
        self.parts += [",", *items] if self.parts else items

    @property
    def as_list(self) -> Any:
        """Itself, typed as the list it stands for; ``json_parts`` writes its JSON."""
        return self


class Encoded:
    """A value that is kept as JSON, where a number beyond a double's range (``1e999``) is null."""

    def __init__(self, value: object) -> None:
        self.text = to_json(value, inf_nan_mode="null").decode()


def json_parts(value: object) -> list[str]:
    """JSON of a value, in parts; lists within it may already be serialised."""
    if isinstance(value, Written):
        return ["[", *value.parts, "]"]
    if isinstance(value, Encoded):
        return [value.text]
    if isinstance(value, dict) and _has_written(value):
        parts = list[str]()
        for name, inner in value.items():
            parts += ["," if parts else "{", f"{encode(name)}:", *json_parts(inner)]
        return [*parts, "}"]
    if isinstance(value, list) and _has_written(value):
        items = Written()
        for item in value:
            items.add(json_parts(item))
        return json_parts(items)
    return [encode(value)]


def _has_written(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_written, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Written | Encoded)
