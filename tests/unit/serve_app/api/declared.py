"""Answers held to the schemas of a document: they are as it says, and have no field that it does not name."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jsonschema

REF = "#/components/schemas/"
ANY_OBJECT = {"type": "object"}  # of which nothing is said, as of the document itself
_Named = tuple[str, Mapping[str, Any]]  # a schema and the name that it is under, if any


def check_against(document: Mapping[str, Any], schema: Mapping[str, Any], found: object) -> None:
    """Raises ``jsonschema.ValidationError`` where something is not what a part of the document says."""
    _validator(document).evolve(schema=schema).validate(found)


class Declared:
    """What one document declares.

    Attributes:
        seen: ``Schema.field`` of all that checked answers had.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document, self._validator = document, _validator(document)
        self.seen: set[str] = set()

    def check(self, method: str, path: str, status: int, content_type: str, text: str) -> list[Any]:
        """Hold an operation's answer to its schema; what it is: one JSON value, or the events of a stream.

        Raises:
            jsonschema.ValidationError: it is not what the document says.
            AssertionError: it has fields that the document does not name, or is no such stream.
        """
        content = self._document["paths"][path][method]["responses"][str(status)]["content"]
        media_type = content_type.partition(";")[0]
        if media_type == "application/json":
            found, schema = [json.loads(text)], content[media_type]["schema"]
        elif media_type == "text/event-stream":
            found = [json.loads(event) for event in events_in(text) if event != "[DONE]"]
            data = content[media_type]["schema"]["properties"]["data"]
            schema = (data if "contentSchema" in data else data["anyOf"][1])["contentSchema"]
        else:
            return []
        for each in found:
            self.check_as(schema, each)
        return found

    def check_as(self, schema: Mapping[str, Any], found: object) -> None:
        """The same of one value and a part of the document."""
        self._validator.evolve(schema=schema).validate(found)
        if schema != ANY_OBJECT:
            undeclared = sorted(set(self._undeclared([("", schema)], found, "")))
            assert not undeclared, f"the document does not name {', '.join(undeclared)}"

    def fields_below(self, schema: Mapping[str, Any]) -> set[str]:
        """``Schema.field`` of all that a part of the document names, and the parts that it refers to."""
        names, left = set[str](), [schema]
        while left:
            found = set(_names_in(left.pop())) - names
            names |= found
            left += [self._document["components"]["schemas"][name] for name in found]
        schemas = self._document["components"]["schemas"]
        return {f"{name}.{field}" for name in names for field in schemas[name].get("properties", ())}

    def _undeclared(self, schemas: Sequence[_Named], found: object, where: str) -> Iterator[str]:
        fitting = [each for name, schema in schemas for each in self._fitting(name, schema, found)]
        if any(each.get("additionalProperties") is True for _, each in fitting):  # a client's own, which is repeated
            return
        if isinstance(found, dict):
            for field, value in found.items():
                inside = [("", schema) for _, each in fitting for schema in _of_field(each, field)]
                if not inside:
                    yield f"{where}.{field}"
                self.seen |= {f"{name}.{field}" for name, each in fitting if field in each.get("properties", ())}
                yield from self._undeclared(inside, value, f"{where}.{field}")
        elif isinstance(found, list):
            for at, value in enumerate(found):
                inside = [("", schema) for _, each in fitting for schema in _of_item(each, at)]
                yield from self._undeclared(inside, value, f"{where}[]")

    def _fitting(self, name: str, schema: Mapping[str, Any], found: object) -> Iterator[_Named]:
        """Of the alternatives that a schema is, those that a value is one of."""
        if "$ref" in schema:
            name = schema["$ref"].removeprefix(REF)
            yield from self._fitting(name, self._document["components"]["schemas"][name], found)
        elif "anyOf" in schema:
            for each in schema["anyOf"]:
                if self._validator.evolve(schema=each).is_valid(found):
                    yield from self._fitting(name, each, found)
        else:
            yield name, schema


def events_in(text: str) -> Iterator[str]:
    """The data of a stream's events, comments passed over; a name of an event is also the ``type`` in its data."""
    for event in text.split("\n\n"):
        if event and not event.startswith(":"):
            name, mark, data = event.rpartition("data: ")
            assert mark, event
            assert not name or name == f"event: {json.loads(data)['type']}\n", event
            yield data


def _validator(document: Mapping[str, Any]) -> jsonschema.Draft202012Validator:
    """Of no part of a document yet; it knows what its parts refer to."""
    return jsonschema.Draft202012Validator({"components": document["components"]})


def _of_field(schema: Mapping[str, Any], field: str) -> Iterator[Mapping[str, Any]]:
    others = schema.get("additionalProperties")
    if field in schema.get("properties", ()):
        yield schema["properties"][field]
    elif isinstance(others, dict):
        yield others


def _of_item(schema: Mapping[str, Any], at: int) -> Iterator[Mapping[str, Any]]:
    firsts = schema.get("prefixItems", ())
    if at < len(firsts):
        yield firsts[at]
    elif isinstance(schema.get("items"), dict):
        yield schema["items"]


def _names_in(part: object) -> Iterator[str]:
    """Of the schemas that a part of a document refers to."""
    inside: Iterable[object] = ()
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].removeprefix(REF)
        inside = part.values()
    elif isinstance(part, list):
        inside = part
    for each in inside:
        yield from _names_in(each)
