"""Parsing of request bodies.

A field is honoured exactly, or refused by name as not supported yet: neutral values (null, ``best_of: 1``,
``tools: []``) are accepted everywhere. A field that no API known here has is ignored, and told (``fields.ignored``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from types import UnionType
from typing import Annotated, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

from outrider.contracts.errors import ParameterError, shown_value
from serve_app.api.http_errors import (
    MalformedBodyError,
    MissingFieldError,
    UnknownFieldError,
    UnknownModelError,
    UnsupportedFieldError,
)
from serve_app.api.openai.bodies import (
    LOOKUP_NEEDED,
    MAX_N,
    MAX_NAME_CHARS,
    MAX_PRIORITY,
    MAX_SALT_CHARS,
    MAX_STOP_CHARS,
    MAX_STOP_STRINGS,
    MAX_TOP_LOGPROBS,
    ChatBody,
    ChatMessage,
    CompletionBody,
    GenerationBody,
    OutriderOptions,
    StreamOptions,
    TextPart,
)
from serve_app.api.openai.fields.ignored import MOST_NAME_CHARS, IgnoredFields
from serve_app.api.openai.json_size import check_json_size, most_values
from serve_app.api.openai.tools.request import check_names
from serve_app.api.openai.unsupported import NOT_YET, TEXT_ONLY, NotYet, not_supported
from serve_app.api.service import RequestLimits

_Body = TypeVar("_Body", bound=GenerationBody)
_Fields = TypeVar("_Fields", bound=BaseModel)
_Path = tuple["_Path | None", str]  # of a value in a body, its last step last; written out only for an error

_NESTED: Mapping[str, type[BaseModel]] = {
    "stream_options": StreamOptions,
    "outrider": OutriderOptions,
    "messages": ChatMessage,
    "content": TextPart,
}
NEEDED_BY_FIELD: Mapping[str, str] = {
    "prompt": "a text, a list of token ids, or a list of either",
    "n": f"an integer in 1..{MAX_N}",
    "top_logprobs": f"an integer in 0..{MAX_TOP_LOGPROBS}",
    "content": "a text, or a list of parts such as {'type': 'text', 'text': '...'}",
    "stop": f"a text or a list of up to {MAX_STOP_STRINGS} texts, each of 1 to {MAX_STOP_CHARS} characters",
    "cache_salt": f"a text of 1 to {MAX_SALT_CHARS} characters",
    "lookup": LOOKUP_NEEDED,
    "logit_bias": "an object of token ids and numbers, such as {'50': -100}",
    "messages": "a list of at least one message",
    "stop_token_ids": "a list of token ids",
    "metadata": "an object of texts, of keys of at most 64 characters and values of at most 512",
    "priority": f"an integer in {-MAX_PRIORITY}..{MAX_PRIORITY} (a lower one goes first)",
    "role": "one of 'system', 'user', 'assistant', 'tool', 'developer' (others are not supported yet)",
    "name": f"a text of at most {MAX_NAME_CHARS} characters",
    "tokens": "a list of token ids",
    "type": "'text' (other parts are not supported yet)",
}
_NEEDED_BY_TYPE = {
    "int_type": "an integer",
    "float_type": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "model_type": "an object",
    "dict_type": "an object",
}


@dataclass(frozen=True, slots=True)
class FieldRules:
    """What is known of an API's fields beyond the types of its bodies."""

    nested: Mapping[str, type[BaseModel]]  # by field name: model of the object, or of the objects in a list
    not_yet: Mapping[str, NotYet]  # fields that are refused by name
    needed: Mapping[str, str]  # what a field's value must be


_CHAT_RULES = FieldRules(_NESTED, NOT_YET, NEEDED_BY_FIELD)


def parse_body(body: bytes, kind: type[_Body], limits: RequestLimits, ignored: IgnoredFields | None = None) -> _Body:
    """Parse a request body; note in ``ignored`` what is not known.

    Raises:
        BodyTooLargeError: more values than may be parsed.
        MalformedBodyError: not JSON, or not an object.
        MissingFieldError: a required field is absent or null.
        UnknownFieldError: a field that resembles a known one; of no known API, where fields must be known.
        UnsupportedFieldError: a field that is not supported yet, with a value that is not neutral.
        UnknownModelError: another model than the one served.
        ParameterError: a value of the wrong type, a list or object that is too long, or one that needs another field.
    """
    data = read_object(body, limits)
    parsed = read_fields(data, kind, ignored or IgnoredFields.of(limits))
    check_model(parsed.model, limits)
    if "stream_options" in parsed.model_fields_set and not parsed.stream:
        raise ParameterError("stream_options", "stream: true", data["stream_options"])
    if isinstance(parsed, ChatBody):
        check_chat(parsed, limits, len(body))
    if isinstance(parsed, CompletionBody):
        _check_completion(parsed)
    return parsed


def check_model(named: str | None, limits: RequestLimits) -> None:
    """Refuse another model than the one served; None: the request names none."""
    if named not in (None, limits.model_name):
        raise UnknownModelError("model", f"model needs one of: {limits.model_name}; found {shown_value(named)}")


def check_chat(body: ChatBody, limits: RequestLimits, body_bytes: float = inf) -> None:
    """Check what a chat's fields need of each other; raises as ``parse_body`` does."""
    check_contents(body.messages)
    check_arguments(body.messages, limits, body_bytes)
    check_names(body)
    if body.top_logprobs and not body.logprobs:
        raise ParameterError("top_logprobs", "logprobs: true", body.top_logprobs)


def read_object(body: bytes, limits: RequestLimits) -> dict[str, object]:
    """Parse a body to its fields.

    Raises:
        BodyTooLargeError: more values than may be parsed.
        MalformedBodyError: not JSON, or not an object.
    """
    check_json_size([body], most_values(limits.max_context_tokens))
    try:
        data = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise MalformedBodyError(f"needs a body in JSON (UTF-8), found: {error}") from error
    if not isinstance(data, dict):
        raise MalformedBodyError(f"needs a JSON object, found a {type(data).__name__}")
    return data


def read_fields(
    data: Mapping[str, object], kind: type[_Fields], ignored: IgnoredFields, rules: FieldRules = _CHAT_RULES
) -> _Fields:
    """Validate fields as a body of this kind; raises as ``parse_body`` does."""
    fields = FieldReader(rules, ignored).read(data, kind)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise explained(error.errors(include_url=False), fields, rules.needed) from None


def as_chat(fields: Mapping[str, object], limits: RequestLimits) -> ChatBody:
    """A chat of fields that were read from another API's request, with what ``parse_body`` checks of its fields."""
    try:
        body = ChatBody.model_validate(fields)
    except ValidationError as error:
        raise explained(error.errors(include_url=False), fields, NEEDED_BY_FIELD) from None
    check_chat(body, limits)
    return body


def check_contents(messages: Sequence[ChatMessage]) -> None:
    """Check that only messages with tool calls lack content."""
    for i, message in enumerate(messages):
        if "content" not in message.model_fields_set and not message.tool_calls:
            field = f"messages[{i}].content"
            raise MissingFieldError(field, f"{field} is missing; it needs {NEEDED_BY_FIELD['content']}")


def check_arguments(messages: Sequence[ChatMessage], limits: RequestLimits, body_bytes: float = inf) -> None:
    """Bound the arguments of tool calls: JSON within JSON, which is parsed for the chat template, or objects.

    Objects were counted with the body of ``body_bytes``. They are written out to be measured only if that is longer
    than any prompt: counting 400,000 values one by one takes 20 times as long as writing them.

    Raises:
        ParameterError: those of all calls together are longer than any prompt.
        BodyTooLargeError: those that are texts have more values than may be parsed.
    """
    functions = [call.get("function") for message in messages for call in message.tool_calls or ()]
    arguments = [function.get("arguments") for function in functions if isinstance(function, dict)]
    texts = [each for each in arguments if isinstance(each, str)]
    length, most = sum(map(len, texts)), limits.max_prompt_chars
    if length <= most < body_bytes:
        length += sum(len(to_json(each)) for each in arguments if isinstance(each, dict | list))
    if length > most:
        raise ParameterError("messages", f"arguments of tool calls of at most {most} characters together", length)
    most = most_values(limits.max_context_tokens)
    check_json_size([text.encode() for text in texts], most, "arguments of tool calls")


def _check_completion(body: CompletionBody) -> None:
    if body.best_of not in (None, 1, body.n):
        raise UnsupportedFieldError("best_of", "best_of is not supported yet; use n and choose among the choices")
    if body.logprobs is not None and not 0 <= body.logprobs <= MAX_TOP_LOGPROBS:
        raise ParameterError("logprobs", f"an integer in 0..{MAX_TOP_LOGPROBS}", body.logprobs)


class FieldReader:
    """Drops and refuses what bodies' models do not have, in one request."""

    def __init__(self, rules: FieldRules, ignored: IgnoredFields) -> None:
        self._rules, self._ignored = rules, ignored

    def read(self, data: Mapping[str, object], kind: type[BaseModel], where: _Path | None = None) -> dict[str, object]:
        """Return the fields of ``kind`` without nulls; drop others if they are neutral or unknown, refuse the rest.

        Among Outrider's own options nothing is ignored: whatever stands there was meant for it.
        """
        kept, most = dict[str, object](), most_entries(kind)
        for name, value in data.items():
            if name in kind.model_fields:
                if isinstance(value, list | dict) and len(value) > most.get(name, len(value)):
                    raise ParameterError(_written((where, name)), f"at most {most[name]} entries", len(value))
                if value is not None:
                    kept[name] = value
            elif (not_yet := not_supported(name, self._rules.not_yet)) is not None:
                if value is not None and not any(type(value) is type(ok) and value == ok for ok in not_yet.neutral):
                    path = _written((where, name))
                    raise UnsupportedFieldError(path, f"{path} is not supported yet; {not_yet.advice}")
            else:
                own = IgnoredFields(strict=True) if kind is OutriderOptions else self._ignored
                own.add(_written((where, name[:MOST_NAME_CHARS])), name, kind.model_fields)
        return kept | {
            name: self._nested(kept[name], name, (where, name)) for name in self._rules.nested if name in kept
        }

    def _nested(self, value: object, name: str, where: _Path) -> object:
        """Read nested objects; pydantic reports values that should be objects and are not."""
        if isinstance(value, list):
            return [self._nested(item, name, (where, f"[{i}]")) for i, item in enumerate(value)]
        kind = self._rules.nested[name]
        if not isinstance(value, dict):
            return value
        if kind is TextPart and value.get("type", "text") != "text":
            path = _written((where, "type"))
            found = shown_value(value["type"])[:64]
            raise UnsupportedFieldError(path, f"{path} {found} is not supported yet; {TEXT_ONLY}")
        return self.read(value, kind, where)


@lru_cache
def most_entries(kind: type[BaseModel]) -> Mapping[str, int]:
    """Maximum lengths of a model's list and object fields; of several kinds of list, the longest."""
    lengths = {name: list(_lengths(field.annotation, field.metadata)) for name, field in kind.model_fields.items()}
    return {name: max(found) for name, found in lengths.items() if found}


def _lengths(annotation: object, metadata: Sequence[object]) -> Iterator[int]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (list, dict):
        yield from (most for item in metadata if (most := getattr(item, "max_length", None)) is not None)
    elif origin is Annotated:
        yield from _lengths(inner[0], [known for info in inner[1:] for known in info.metadata])
    elif origin in (Union, UnionType):
        for member in inner:
            yield from _lengths(member, ())


def _written(path: _Path) -> str:
    """The path as text, such as ``messages[0].content``."""
    before, step = path
    if before is None:
        return step
    return f"{_written(before)}{step}" if step.startswith("[") else f"{_written(before)}.{step}"


def explained(
    errors: Sequence[ErrorDetails], data: object, needed_by_field: Mapping[str, str], path: str = ""
) -> ParameterError | MissingFieldError | UnknownFieldError:
    """Name the field by its path in the body (pydantic's path has type names too), what it needs and what was found.

    ``path`` is that of ``data``; "": it is the body.
    """
    error = next((error for error in errors if error["type"] == "too_long"), errors[0])
    last, found = "", data
    for step in error["loc"]:
        if isinstance(step, int) and isinstance(found, list):
            path, last, found = f"{path}[{step}]", "", found[step]
        elif isinstance(found, dict) and (step in found or error["type"] == "missing"):
            last = str(step)
            path, found = (f"{path}.{step}" if path else last), found.get(step)
    if error["type"] == "missing":
        return MissingFieldError(path, f"{path} is missing; it needs {needed_by_field.get(last, 'a value')}")
    if error["type"] == "extra_forbidden":
        return UnknownFieldError(path, f"{path} is not a known field")
    if error["type"] == "too_long" and isinstance(found, list | dict):
        return ParameterError(path, f"at most {error['ctx']['max_length']} entries", len(found))
    needed = needed_by_field.get(last) or _NEEDED_BY_TYPE.get(error["type"]) or error["msg"]
    return ParameterError(path, needed, found)
