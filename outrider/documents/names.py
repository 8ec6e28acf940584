"""Validate fields that name an entry of a registry: values and error messages follow from its keys."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True, slots=True, eq=False)
class NameIn:
    """Annotation of a ``str`` that names an entry of ``registry``, as the registry is when the field is read."""

    registry: Mapping[str, object]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        """Return the names, which ``explain`` reads from the schema. Called by pydantic."""
        return {"enum": list(self.registry)}

    def _checked(self, value: object) -> str:
        if isinstance(value, str) and value in self.registry:
            return value
        raise PydanticCustomError("unknown_name", "no name in the registry")
