"""Bodies: every field that a service's ``/openapi.json`` describes, filled with each JSON type, large and deep."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.hostile.cases import BODY_BYTES, MODEL, Case, Target, worst
from tests.hostile.promises import Family
from tests.hostile.raw_http import Answer

_MARK = "hostile value"
_UNSUPPORTED = "Not supported"  # how descriptions of fields begin that are refused by name
_NUMBERS = ("1000000000", "1e308", "1e400", "-1", "0", "5e-324", "9223372036854775808", "-9223372036854775809", "NaN")
_SMALL = (
    *_NUMBERS,
    "Infinity",
    "9" * 5000,
    '""',
    '"\\ud800"',
    '"\\u0000"',
    "null",
    "true",
    "[]",
    "{}",
    "[[]]",
    "[null]",
)
Path = tuple[str, ...]  # keys; "0" is the first item of a list

_BASES: Mapping[str, Mapping[str, Any]] = {
    "/v1/completions": {"model": MODEL, "prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/responses": {"model": MODEL, "input": "a", "max_output_tokens": 1},
    "/v1/messages": {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/messages/count_tokens": {"model": MODEL, "messages": [{"role": "user", "content": "a"}]},
    "/tokenize": {"model": MODEL, "prompt": "a"},
    "/v1/tokenize": {"model": MODEL, "prompt": "a"},
    "/v1/detokenize": {"model": MODEL, "tokens": [1]},
    "/detokenize": {"model": MODEL, "tokens": [1]},
}
ROUTES = frozenset(_BASES)


def _repeated(item: str, opens: str = "[", closes: str = "]") -> str:
    return opens + ",".join([item] * ((BODY_BYTES - 400) // (len(item) + 1))) + closes


def _object(value: str) -> str:
    return "{" + ",".join(f'"{i}":{value}' for i in range((BODY_BYTES - 400) // (len(value) + 11))) + "}"


def _deep(opens: str, closes: str, inner: str = "1") -> str:
    depth = (BODY_BYTES - 400) // (len(opens) + len(closes))
    return opens * depth + inner + closes * depth


FILLINGS: Mapping[str, Callable[[], str]] = {
    "integers": lambda: _repeated("1"),
    "lists": lambda: _repeated("[]"),
    "objects": lambda: _repeated("{}"),
    "texts": lambda: _repeated('""'),
    "nulls": lambda: _repeated("null"),
    "floats": lambda: _repeated("1e5"),
    "lists of lists of one": lambda: _repeated("[[1]]"),
    "text parts": lambda: _repeated('{"type":"text","text":""}'),
    "messages": lambda: _repeated('{"role":"user","content":""}'),
    "keys": lambda: _object("1"),
    "keys of texts": lambda: _object('""'),
    "keys of lists": lambda: _object("[]"),
    "text": lambda: '"' + "a" * (BODY_BYTES - 400) + '"',
    "spaces": lambda: '"' + " " * (BODY_BYTES - 400) + '"',
    "escapes": lambda: '"' + "\\u0041" * ((BODY_BYTES - 400) // 6) + '"',
    "surrogates": lambda: '"' + "\\ud800" * ((BODY_BYTES - 400) // 6) + '"',
    "digits": lambda: "9" * (BODY_BYTES - 400),
    "deep lists": lambda: _deep("[", "]"),
    "deep objects": lambda: _deep('{"a":', "}"),
    "wide and deep": lambda: "[" * 60 + _repeated('{"a":[[1,2],{}]}').replace("[", "[", 1) + "]" * 60,
}
_SHORT = frozenset(
    {
        ("/v1/chat/completions", ("messages", "0", "content"), "integers"),
        ("/v1/chat/completions", ("messages",), "messages"),
        ("/v1/chat/completions", ("messages",), "objects"),
        ("/v1/chat/completions", ("tools",), "objects"),
        ("/v1/completions", ("prompt",), "lists of lists of one"),
        ("/v1/completions", ("prompt",), "texts"),
        ("/v1/completions", ("logit_bias",), "keys of texts"),
        ("/v1/completions", ("guided_json",), "keys of lists"),
        ("/v1/completions", ("stop",), "texts"),
        ("/tokenize", ("prompt",), "lists"),
        ("/detokenize", ("tokens",), "integers"),
        ("/v1/completions", ("user",), "deep lists"),
    }
)


@dataclass(frozen=True, slots=True)
class FieldOf:
    """A place in a body."""

    route: str
    path: Path
    supported: bool = True

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.route} {'.'.join(self.path)}"


def fields_of(document: Mapping[str, Any]) -> Iterator[FieldOf]:
    """Every field of every body, those inside objects and lists included, and one that nobody knows."""
    for route, methods in document["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {})
        for media in content.values():
            found = dict(_paths(media["schema"], document, ()))
            found["nobody knows it",] = True
            yield from (FieldOf(route, path, supported) for path, supported in found.items())


def _paths(schema: Any, document: Mapping[str, Any], before: Path) -> Iterator[tuple[Path, bool]]:
    """Each with whether the field is of any use."""
    if not isinstance(schema, dict) or len(before) > 4:
        return
    if "$ref" in schema:
        yield from _paths(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document, before)
    for kind in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(kind, ()):
            yield from _paths(each, document, before)
    for name, inner in schema.get("properties", {}).items():
        yield (*before, name), not str(inner.get("description", "")).startswith(_UNSUPPORTED)
        yield from _paths(inner, document, (*before, name))
    if isinstance(schema.get("items"), dict):
        yield (*before, "0"), True
        yield from _paths(schema["items"], document, (*before, "0"))


def _value_at(path: Path) -> Any:
    if not path:
        return _MARK
    inner = _value_at(path[1:])
    return [inner] if path[0] == "0" else {path[0]: inner}


def body_around(place: FieldOf) -> tuple[str, str]:
    """A sound body up to the value of a field, and from there on."""
    value = _value_at(place.path[1:])
    if place.path[0] in ("messages", "input") and isinstance(value, list):
        first = value[0]
        value = [{"role": "user", "content": "a", **first}] if isinstance(first, dict) else value
        if isinstance(first, dict) and isinstance(first.get("content"), list) and isinstance(first["content"][0], dict):
            value[0]["content"] = [{"type": "text", "text": "a", **first["content"][0]}]
    body = {**_BASES.get(place.route, {}), place.path[0]: value}
    before, _, behind = json.dumps(body).partition(json.dumps(_MARK))
    return before, behind


@cache
def _filling(name: str) -> bytes:
    return FILLINGS[name]().encode()


def _filled(place: FieldOf, filling: str) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        before, behind = (part.encode() for part in body_around(place))
        value = _filling(filling)
        return await target.post(place.route, (before, value, behind), len(before) + len(value) + len(behind))

    return drive


def _small(place: FieldOf) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        before, behind = body_around(place)
        answers = []
        for value in _SMALL:
            body = (before + value + behind).encode()
            answers.append(await target.post(place.route, (body,), len(body)))
        return worst(answers)

    return drive


def cases(document: Mapping[str, Any]) -> Iterator[Case]:
    """Each field with each filling, and with all small values one after the other; then bodies that are one value."""
    for place in fields_of(document):
        name = f"{place.name}: {len(_SMALL)} small values"
        yield Case(Family.BODIES, name, _small(place), likely=place.supported)
        for filling in FILLINGS:
            short = (place.route, place.path, filling) in _SHORT
            name = f"{place.name}: 4 MiB of {filling}"
            yield Case(Family.BODIES, name, _filled(place, filling), short, likely=place.supported)
    for route in _BASES:
        for filling in FILLINGS:
            yield Case(Family.BODIES, f"{route}: a body of {filling}", _whole(route, filling))


def _whole(route: str, filling: str) -> Callable[[Target], Any]:
    async def drive(target: Target) -> Answer:
        value = _filling(filling)
        return await target.post(route, (value,), len(value))

    return drive
