"""Reference of the HTTP API, from the OpenAPI document that a service answers with."""

from collections.abc import Iterator
from typing import Any

from lab.docsite.schema_text import Schema, attributes, code, summary, type_of
from outrider.config.schema import Config
from outrider.contracts.slo import SloClass
from serve_app.api.openapi.document import openapi_document
from serve_app.api.service import RequestLimits

_HEAD = """# HTTP API

Drawn from the document that a service with keys answers at `/openapi.json` (and shows at `/docs`), for the default
configuration: a service of your own says the ranges that hold there. {about}
"""
_REFUSED = "Not supported yet; "


def api_document() -> dict[str, Any]:
    """Return the document of a service with the default configuration, and with keys."""
    config = Config()
    limits = RequestLimits(
        model_name=config.model.public_name,
        max_context_tokens=8192,
        max_output_tokens=config.limits.max_output_tokens,
        vocab_size=49152,
        k_max=config.speculation.k_max,
        max_prompt_chars=2**20,
        slo_classes=tuple(SloClass(known.name, known.tokens_per_s) for known in config.slo.classes),
        judges=True,
        drafters={group.name: True for group in config.drafters},
    )
    return openapi_document(limits, keys=True)


def api_page() -> str:
    document = api_document()
    schemas = document["components"]["schemas"]
    parts = [_HEAD.format(about=document["info"]["description"])]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append("\n".join(_operation(f"{method.upper()} {path}", operation)))
    parts.append("## Schemas\n")
    parts += ["\n".join(_schema(name, schema)) for name, schema in schemas.items()]
    parts.append("\n".join(_refused(schemas)))
    return "\n".join(parts)


def _operation(title: str, operation: Schema) -> Iterator[str]:
    yield f"## `{title}`\n"
    yield f"{operation['summary']}. {operation.get('description', '')}\n"
    if "requestBody" in operation:
        (content,) = operation["requestBody"]["content"].values()
        yield f"Body: {_linked(content['schema'])}.\n"
    if "parameters" in operation:
        yield "| parameter | in | takes | what |\n| --- | --- | --- | --- |"
        for known in operation["parameters"]:
            cells = (f"`{known['name']}`", known["in"], type_of(known["schema"]), known.get("description", ""))
            yield _row(*cells)
        yield ""
    yield "| status | what | content |\n| --- | --- | --- |"
    for status, answer in sorted(operation["responses"].items()):
        kinds = (f"`{kind}`: {_linked(found['schema'])}" for kind, found in answer.get("content", {}).items())
        yield _row(f"`{status}`", answer["description"], ", ".join(kinds))
    yield ""


def _schema(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name}\n"
    if said := summary(schema):
        yield f"{said}\n"
    if "properties" not in schema:
        yield f"{_linked(schema)}\n"
        return
    notes, needed = attributes(schema), schema.get("required", ())
    yield "| field | takes | default | what |\n| --- | --- | --- | --- |"
    for field, found in schema["properties"].items():
        if not found.get("description", "").startswith(_REFUSED):
            default = code(found["default"]) if "default" in found else "always there" if field in needed else ""
            yield _row(f"`{field}`", _linked(found), default, summary(found) or notes.get(field, ""))
    yield ""


def _refused(schemas: dict[str, Schema]) -> Iterator[str]:
    """The fields of other servers that are refused: what to do instead, by body."""
    yield "## Fields that are refused\n"
    yield "Fields of OpenAI's and vLLM's APIs that are answered with a 400, unless their value changes nothing.\n"
    yield "| field | instead | in |\n| --- | --- | --- |"
    found: dict[tuple[str, str], list[str]] = {}
    for name, schema in schemas.items():
        for field, known in schema.get("properties", {}).items():
            if name.endswith("Body") and known.get("description", "").startswith(_REFUSED):
                found.setdefault((field, known["description"].removeprefix(_REFUSED)), []).append(name)
    for (field, advice), names in sorted(found.items()):
        yield _row(f"`{field}`", advice, ", ".join(f"`{name}`" for name in names))
    yield ""


def _linked(schema: Schema) -> str:
    """Its type, with links to the schemas that it names."""
    text = type_of(schema)
    for name in _names(schema):
        text = text.replace(f"`{name}`", f"[`{name}`](#{name.lower()})")
    return text


def _names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for key in ("anyOf", "items"):
            yield from _names(schema.get(key))
    elif isinstance(schema, list):
        for part in schema:
            yield from _names(part)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
