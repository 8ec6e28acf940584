"""Fields that name an entry of a registry: what they allow, and what errors say is allowed, are its keys."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True, slots=True, eq=False)
class NameIn:
    """Annotates a ``str``: the name of an entry of ``registry``, as it is when the field is read."""

    registry: Mapping[str, object]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        """Called by pydantic; ``explain`` reads the names off it."""
        return {"enum": list(self.registry)}

    def _checked(self, value: object) -> str:
        if isinstance(value, str) and value in self.registry:
            return value
        raise PydanticCustomError("unknown_name", "no name in the registry")
