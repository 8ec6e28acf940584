"""JSON Schemas of answers, generated from the types that their writers return."""

from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from serve_app.answers import ChatCompletion, ChatCompletionChunk, Completion, CompletionChunk, ErrorBody
from serve_app.api.messages.answers import MESSAGE_EVENTS, MessageAnswer, TokenCount
from serve_app.api.messages.models import ModelInfo, ModelInfoList
from serve_app.api.openapi.requests import REF, Schema
from serve_app.api.responses.answers import RESPONSE_EVENTS, ModelResponse
from serve_app.service_answers import Detokenized, Health, Load, Model, ModelList, Ready, Status, Tokenized, Version

_Kind = tuple[str, Literal["serialization"], TypeAdapter[Any]]
ANSWERS: tuple[type[Any], ...] = (
    ModelResponse,
    *RESPONSE_EVENTS,
    *(ErrorBody, ChatCompletion, ChatCompletionChunk, Completion, CompletionChunk, Model, ModelList),
    *(Tokenized, Detokenized, Version, Health, Load, Ready, Status),
    *(MessageAnswer, TokenCount, ModelInfo, ModelInfoList),
    *MESSAGE_EVENTS,
)


class _AsWritten(GenerateJsonSchema):
    """Generator in which every dataclass field is required, as it is always written; names get no titles."""

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 (interface)
        return False


def answer_schemas() -> dict[str, Schema]:
    """Return schemas by name; references are to a document's components."""
    kinds: list[_Kind] = [(kind.__name__, "serialization", TypeAdapter(kind)) for kind in ANSWERS]
    _, whole = TypeAdapter.json_schemas(kinds, ref_template=f"{REF}{{model}}", schema_generator=_AsWritten)
    schemas: dict[str, Schema] = whole["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
        if schema.get("additionalProperties") is False:  # holds for whoever reads a configuration file, not for clients
            del schema["additionalProperties"]
    return schemas
