"""OpenAI's API as data: the request bodies, and how they are read. No HTTP, no Ray, no clock.

Nothing in a request is ignored. A field is honoured exactly, or refused by name: as unknown, or as not supported yet.
Values that ask for nothing (null, ``best_of: 1``, ``tools: []``) are accepted everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, from_json

from outrider.contracts.errors import ParameterError
from outrider.contracts.slo import BEST_EFFORT, SloClass
from serve_app.api.http_errors import (
    MalformedBodyError,
    MissingFieldError,
    UnknownFieldError,
    UnknownModelError,
    UnsupportedFieldError,
)
from serve_app.api.openai.unsupported import NOT_YET, TEXT_ONLY

_MAX_STOP_STRINGS = 16
_MAX_STOP_CHARS = 1024
_MAX_N = 16
_MAX_TOP_LOGPROBS = 20  # OpenAI's

_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True)
StopString = Annotated[str, Field(min_length=1, max_length=_MAX_STOP_CHARS)]
# One error is told, so no more are looked for: a list may have a million items.
TokenIds = Annotated[list[int], Field(fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
ListsOfTokenIds = Annotated[list[TokenIds], Field(fail_fast=True)]


class StreamOptions(BaseModel):
    """``stream_options``. ``continuous_usage_stats`` (vLLM's) puts the usage so far on every event."""

    model_config = _STRICT
    include_usage: bool = False
    continuous_usage_stats: bool = False


class OutriderOptions(BaseModel):
    """``outrider``: our own options.

    Attributes:
        window: fixes the draft tokens per round; 0 drafts nothing.
        protocol: fixes what crosses the link in every round with a draft.
        expansion: fixes the shape of token trees, children per node by depth, ``window`` numbers.
        slo_class: whose speed the response is promised.
        explain: whether ``usage`` is to tell why each round was made as it was.
        spans: whether to tell of each piece of text who proposed it.
    """

    model_config = _STRICT
    window: int | None = None
    protocol: str | None = None
    expansion: Annotated[list[int], Field(fail_fast=True, max_length=64)] = []
    slo_class: str | None = None
    explain: bool = False
    spans: bool = False


class TextPart(BaseModel):
    """One part of a message's content."""

    model_config = _STRICT
    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a chat. Its parts are joined by newlines, as vLLM does."""

    model_config = _STRICT
    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


class GenerationBody(BaseModel):
    """What completions and chats have in common. Ranges not given here are ``SamplingParams``' and ``to_choices``'."""

    model_config = _STRICT
    model: str
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[int, Field(ge=1, le=_MAX_N)] = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: StopString | Annotated[list[StopString], Field(max_length=_MAX_STOP_STRINGS)] = []
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] = {}
    seed: int | None = None
    ignore_eos: bool = False
    user: str | None = None  # who asks; of no meaning to a response
    safety_identifier: str | None = None  # the same, newer
    outrider: OutriderOptions = OutriderOptions()


class CompletionBody(GenerationBody):
    """``POST /v1/completions``."""

    prompt: str | TokenIds | Texts | ListsOfTokenIds
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = None

    @property
    def alternatives(self) -> int | None:
        """How many alternatives to report with each token's log-probability; None reports nothing."""
        return self.logprobs


class ChatBody(GenerationBody):
    """``POST /v1/chat/completions``. ``max_completion_tokens`` is the newer name of ``max_tokens``."""

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=_MAX_TOP_LOGPROBS)] = 0

    @property
    def alternatives(self) -> int | None:
        """How many alternatives to report with each token's log-probability; None reports nothing."""
        return self.top_logprobs if self.logprobs else None


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What the served model allows of a request."""

    model_name: str
    max_context_tokens: int  # prompt and output together
    max_output_tokens: int
    vocab_size: int
    k_max: int
    max_prompt_chars: int  # a longer text is refused without the cost of tokenising it
    slo_classes: tuple[SloClass, ...] = (BEST_EFFORT,)  # the first is that of requests that name none


_Body = TypeVar("_Body", bound=GenerationBody)


_NESTED: Mapping[str, type[BaseModel]] = {  # by field name: what an object there is, or the objects of a list
    "stream_options": StreamOptions,
    "outrider": OutriderOptions,
    "messages": Message,
    "content": TextPart,
}
_NEEDED_BY_FIELD = {
    "prompt": "a text, a list of token ids, or a list of either",
    "n": f"an integer in 1..{_MAX_N}",
    "top_logprobs": f"an integer in 0..{_MAX_TOP_LOGPROBS}",
    "content": "a text, or a list of parts such as {'type': 'text', 'text': '...'}",
    "stop": f"a text or a list of up to {_MAX_STOP_STRINGS} texts, each of 1 to {_MAX_STOP_CHARS} characters",
    "logit_bias": "an object of token ids and numbers, such as {'50': -100}",
    "messages": "a list of at least one message",
    "role": "one of 'system', 'user', 'assistant' (others are not supported yet)",
    "type": "'text' (other parts are not supported yet)",
}
_NEEDED_BY_TYPE = {
    "int_type": "an integer",
    "float_type": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "model_type": "an object",
}


def parse_body(body: bytes, kind: type[_Body], limits: RequestLimits) -> _Body:
    """Read a request body.

    Raises:
        MalformedBodyError: no JSON, or not an object.
        MissingFieldError: a required field is absent or null.
        UnknownFieldError: a field that no API knows.
        UnsupportedFieldError: one that we do not honour yet, with a value that asks for something.
        UnknownModelError: another model than the one served.
        ParameterError: a value of the wrong type, or one that needs another field's.
    """
    try:
        data = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise MalformedBodyError(f"needs a body in JSON (UTF-8), found: {error}") from error
    if not isinstance(data, dict):
        raise MalformedBodyError(f"needs a JSON object, found a {type(data).__name__}")
    fields = _without_neutral(data, kind, "")
    fields |= {name: _nested(fields[name], name) for name in _NESTED if name in fields}
    try:
        parsed = kind.model_validate(fields)
    except ValidationError as error:
        raise _explained(error.errors(include_url=False, include_context=False)[0], fields) from None
    if parsed.model != limits.model_name:
        raise UnknownModelError("model", f"model needs one of: {limits.model_name}; found {parsed.model!r}")
    if "stream_options" in fields and not parsed.stream:
        raise ParameterError("stream_options", "stream: true", fields["stream_options"])
    if isinstance(parsed, ChatBody) and parsed.top_logprobs and not parsed.logprobs:
        raise ParameterError("top_logprobs", "logprobs: true", parsed.top_logprobs)
    if isinstance(parsed, CompletionBody):
        _check_completion(parsed)
    return parsed


def _check_completion(body: CompletionBody) -> None:
    if body.best_of not in (None, 1, body.n):
        raise UnsupportedFieldError("best_of", "best_of is not supported yet; use n and choose among the choices")
    if body.logprobs is not None and not 0 <= body.logprobs <= _MAX_TOP_LOGPROBS:
        raise ParameterError("logprobs", f"an integer in 0..{_MAX_TOP_LOGPROBS}", body.logprobs)


def _without_neutral(data: Mapping[str, object], kind: type[BaseModel], where: str) -> dict[str, object]:
    """The fields of ``kind``, less nulls; other fields are dropped if they ask for nothing, and else refused."""
    kept = {}
    for name, value in data.items():
        if name in kind.model_fields:
            if value is not None:
                kept[name] = value
        elif name in NOT_YET:
            not_yet = NOT_YET[name]
            if value is not None and not any(type(value) is type(ok) and value == ok for ok in not_yet.neutral):
                raise UnsupportedFieldError(where + name, f"{where}{name} is not supported yet; {not_yet.advice}")
        else:
            near = get_close_matches(name[:64], kind.model_fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(kind.model_fields)}"
            short = name[:64]
            raise UnknownFieldError(where + short, f"{where}{short} is no known field; {hint}")
    return kept


def _nested(value: object, where: str) -> object:
    """``_without_neutral`` for the objects inside a body; what is no object where one should be is left to pydantic."""
    if isinstance(value, list):
        return [_nested(item, f"{where}[{i}]") for i, item in enumerate(value)]
    kind = _NESTED[where.rpartition(".")[2].partition("[")[0]]
    if not isinstance(value, dict):
        return value
    if kind is TextPart and value.get("type", "text") != "text":
        raise UnsupportedFieldError(
            f"{where}.type", f"{where}.type {value['type']!r:.64} is not supported yet; {TEXT_ONLY}"
        )
    kept = _without_neutral(value, kind, f"{where}.")
    if isinstance(kept.get("content"), list):
        kept["content"] = _nested(kept["content"], f"{where}.content")
    return kept


def _explained(error: ErrorDetails, data: object) -> ParameterError | MissingFieldError | UnknownFieldError:
    """Name the field by its path in the body (pydantic's path has type names too), what it needs and what is there."""
    path, last, found = "", "", data
    for step in error["loc"]:
        if isinstance(step, int) and isinstance(found, list):
            path, last, found = f"{path}[{step}]", "", found[step]
        elif isinstance(found, dict) and (step in found or error["type"] == "missing"):
            last = str(step)
            path, found = (f"{path}.{step}" if path else last), found.get(step)
    if error["type"] == "missing":
        return MissingFieldError(path, f"{path} is missing; it needs {_NEEDED_BY_FIELD.get(last, 'a value')}")
    if error["type"] == "extra_forbidden":
        return UnknownFieldError(path, f"{path} is no known field")
    needed = _NEEDED_BY_FIELD.get(last) or _NEEDED_BY_TYPE.get(error["type"]) or error["msg"]
    return ParameterError(path, needed, found)
