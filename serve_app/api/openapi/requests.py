"""JSON Schemas of request bodies, as ``parsing`` accepts them.

Generated from the bodies' models. Added is what models cannot say: ranges that depend on the served model, nulls, which
equal absent fields, and fields of which only neutral values are accepted. A body that violates its schema is refused;
constraints between fields, or on the tokens of a prompt, refuse more.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from outrider.contracts.requests import MAX_LOOKUP_TOKENS, SAMPLING_RANGES
from serve_app.api.messages.bodies import MESSAGES_BODIES, CountTokensBody, MessagesBody
from serve_app.api.messages.fields import MESSAGES_NOT_YET
from serve_app.api.openai.bodies import (
    MAX_LOGIT_BIAS,
    MAX_TOP_LOGPROBS,
    ChatBody,
    ChatMessage,
    CompletionBody,
    OutriderOptions,
    StreamOptions,
    TextPart,
)
from serve_app.api.openai.tokenizing import DetokenizeBody, TokenizeChatBody, TokenizeTextBody
from serve_app.api.openai.unsupported import NOT_YET, NotYet
from serve_app.api.responses.bodies import (
    RESPONSES_NOT_YET,
    InputItem,
    InputPart,
    ReasoningOptions,
    ResponsesBody,
    ResponseStreamOptions,
    TextOptions,
)
from serve_app.api.service import RequestLimits

Schema = dict[str, Any]
_OF_RESPONSES: tuple[type[BaseModel], ...] = (
    *(ResponsesBody, InputItem, InputPart, TextOptions, ReasoningOptions, ResponseStreamOptions),
)
BODIES: tuple[type[BaseModel], ...] = (
    *(CompletionBody, ChatBody, TokenizeTextBody, TokenizeChatBody, DetokenizeBody),
    *(ChatMessage, TextPart, StreamOptions, OutriderOptions),
    *_OF_RESPONSES,
    *MESSAGES_BODIES,
)
REF = "#/components/schemas/"
_NULL: Schema = {"type": "null"}


def request_schemas(limits: RequestLimits) -> dict[str, Schema]:
    """Return schemas by the name of a body, or of a part of one; references are to a document's components."""
    _, whole = models_json_schema([(kind, "validation") for kind in BODIES], ref_template=f"{REF}{{model}}")
    schemas: dict[str, Schema] = whole["$defs"]
    for kind in BODIES:
        schema = schemas[kind.__name__]
        known = _known(kind, limits)
        for name, field in schema["properties"].items():
            described = _narrowed(field, known.get(name, {}))
            schema["properties"][name] = described if name in schema.get("required", ()) else _nullable(described)
        # The parser allows these in each object of a body.
        not_yet = RESPONSES_NOT_YET if kind in _OF_RESPONSES else NOT_YET
        not_yet = MESSAGES_NOT_YET if kind in (MessagesBody, CountTokensBody) else not_yet
        if kind is CountTokensBody:  # what only an answer depends on is passed over
            schema["properties"] |= {name: {} for name in MessagesBody.model_fields if name not in kind.model_fields}
        schema["properties"] |= {
            name: _neutral(one) for name, one in not_yet.items() if name not in schema["properties"]
        }
        schema.pop("title", None)
        if kind is not OutriderOptions and not limits.strict_fields:
            del schema["additionalProperties"]
    return schemas


def _known(kind: type[BaseModel], limits: RequestLimits) -> dict[str, Schema]:
    """What is known of a kind's fields beyond their types."""
    if kind is OutriderOptions:
        return _options(limits)
    if kind in (TokenizeTextBody, TokenizeChatBody, DetokenizeBody, CountTokensBody):
        token = {"type": "integer", "minimum": 0, "maximum": limits.vocab_size - 1}
        return {"model": {"enum": [limits.model_name]}, "tokens": {"items": token}}
    if kind not in (CompletionBody, ChatBody, ResponsesBody, MessagesBody):
        return {}
    most = limits.max_output_tokens
    numbers = {"min_tokens": (0, most)}
    lengths = {"max_tokens": int(kind is not CompletionBody), "max_completion_tokens": 1, "max_output_tokens": 1}
    if limits.strict_fields:
        numbers |= {name: (low, most) for name, low in lengths.items()}
    numbers["seed"] = (-(2**63), 2**63 - 1)
    numbers |= {"logprobs": (0, MAX_TOP_LOGPROBS)} if kind is CompletionBody else {}
    found: dict[str, Schema] = {name: {"minimum": low} for name, low in lengths.items()}
    found |= {name: {"minimum": low, "maximum": high} for name, (low, high) in numbers.items()}
    for name, allowed in SAMPLING_RANGES.items():
        least = "exclusiveMinimum" if allowed.low_open else "minimum"
        found[name] = {least: -1 if name == "top_k" else allowed.low}
        found[name] |= {} if allowed.high == float("inf") else {"maximum": allowed.high}
        found[name] |= {"default": limits.defaults.params[name]} if name in limits.defaults.params else {}
    bias = {"type": "number", "minimum": -100, "maximum": 100}
    names = {"pattern": "^(0|[1-9][0-9]*)$"}
    found["logit_bias"] = {"maxProperties": MAX_LOGIT_BIAS, "additionalProperties": bias, "propertyNames": names}
    found["stop_token_ids"] = {"items": {"type": "integer", "minimum": 0, "maximum": limits.vocab_size - 1}}
    return found | {"model": {"enum": [limits.model_name]}}


def _options(limits: RequestLimits) -> dict[str, Schema]:
    groups, classes = list(limits.drafters), [slo.name for slo in limits.slo_classes]
    one = {"type": "string", "enum": classes}
    several = {"type": "array", "items": one, "minItems": 1, "maxItems": 16, "uniqueItems": True}
    group: Schema = {"type": "string", "enum": groups} if groups else {"not": {}}
    tokens = {"type": "integer", "minimum": 0, "maximum": MAX_LOOKUP_TOKENS}
    return {
        "window": {"minimum": 0, "maximum": limits.k_max},
        "protocol": {"enum": list(limits.protocols)},
        "expansion": {"items": {"type": "integer", "minimum": 1}},
        "rows": {"minimum": 1, "maximum": limits.k_max},
        "lookup": {"anyOf": [{"type": "boolean"}, tokens, _NULL]},
        "slo_class": {"anyOf": [one, several, _NULL]},
        "drafters": {"items": group},
    }


def _narrowed(field: Schema, known: Schema) -> Schema:
    """Narrow a field's schema: its only type that is not null, or all of it."""
    field = {key: value for key, value in field.items() if key != "title"}
    if "anyOf" in known:
        return {key: value for key, value in field.items() if key != "anyOf"} | known
    kinds = field.get("anyOf", [])
    others = [kind for kind in kinds if kind != _NULL]
    if not known or len(others) != 1:
        return field | known
    return field | {"anyOf": [others[0] | known, *([_NULL] if _NULL in kinds else [])]}


def _nullable(field: Schema) -> Schema:
    if "anyOf" in field:
        return field if _NULL in field["anyOf"] else field | {"anyOf": [*field["anyOf"], _NULL]}
    about = {key: field[key] for key in ("default", "description") if key in field}
    return {"anyOf": [{key: value for key, value in field.items() if key not in about}, _NULL]} | about


def _neutral(not_yet: NotYet) -> Schema:
    return {"enum": [*_distinct(not_yet.neutral), None], "description": f"Not supported yet; {not_yet.advice}."}


def _distinct(values: Iterable[object]) -> list[object]:
    """Remove duplicates as JSON sees them: 1.0 equals 1."""
    kept: list[object] = []
    for value in values:
        if not any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in kept):
            kept.append(value)
    return kept
