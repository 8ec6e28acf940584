"""What the API answers, as data that schemas are made of. Clients are to pass over fields they do not know."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from outrider.contracts.requests import FinishReason, TokenOrigin
from serve_app.api.openapi.requests import REF, Schema


class _Answer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())


class ErrorDetail(_Answer):
    """``param`` is the path of the field that is at fault, if one is."""

    message: str
    type: str
    param: str | None
    code: str


class Error(_Answer):
    """OpenAI's form, for every error; on a stream that has begun an event of its own."""

    error: ErrorDetail


class SpanText(_Answer):
    """A piece of text and who proposed it."""

    text: str
    origin: TokenOrigin


class Spans(_Answer):
    """Told where ``outrider.spans`` asks for it."""

    spans: list[SpanText]


class TopLogprob(_Answer):
    """One token, as it is spelled."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """A token of the answer, and the likeliest in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(_Answer):
    """``choices[].logprobs`` of a chat."""

    content: list[TokenLogprob]
    refusal: None


class CompletionLogprobs(_Answer):
    """``choices[].logprobs`` of a completion."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptDetails(_Answer):
    """Of a prompt's tokens."""

    cached_tokens: int


class CompletionDetails(_Answer):
    """Of draft tokens."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class LateRounds(_Answer):
    """Rounds that were slower than promised, by cause."""

    queue: int
    compute: int


class SloUsage(_Answer):
    """What was promised and given."""

    preferred_class: str | None = None
    slo_class: str = Field(alias="class")
    promised_tokens_per_s: float | None
    achieved_tokens_per_s: float | None
    kept: bool
    cause: str | None
    times_behind: int
    late_rounds: LateRounds


class PayloadBits(_Answer):
    """Of messages from devices, and to them."""

    up: int
    down: int


class OutriderUsage(_Answer):
    """How a response was made. ``sampling``: what tokens were drawn by, where it asks for something."""

    rounds: int
    speculative_rounds: int
    drafted_tokens: int
    accepted_tokens: int
    trimmed_tokens: int
    protocols: dict[str, int]
    payload_bits: PayloadBits
    lossless: bool
    sampling: dict[str, float]
    verification: Literal["lossless", "semantic"]
    reproducible: bool | None = None
    judged_tokens: int | None = None
    overrides: list[list[int]] | None = None
    slo: SloUsage
    choices: list[dict[str, Any]] | None = None


class Usage(_Answer):
    """OpenAI's, and our own."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
    outrider: OutriderUsage


class AssistantMessage(_Answer):
    """The answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: None


class ChatChoice(_Answer):
    """One of ``n``."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    outrider: Spans | None = None


class CompletionChoice(_Answer):
    """One of ``n`` for each prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason
    outrider: Spans | None = None


class ChatCompletion(_Answer):
    """A chat's answer as a whole."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Completion(_Answer):
    """A completion as a whole."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class Delta(_Answer):
    """A piece of an answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(_Answer):
    """What an event adds to a choice."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    outrider: Spans | None = None


class CompletionChunkChoice(_Answer):
    """What an event adds to a choice."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    outrider: Spans | None = None


class ChatCompletionChunk(_Answer):
    """An event of a streamed chat; ``usage`` with the last one, or with all, where that is asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None


class CompletionChunk(_Answer):
    """An event of a streamed completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: Usage | None = None


class ModelOutrider(_Answer):
    """What may be asked of it. ``sampling`` is what a request that says nothing is sampled by."""

    sampling: dict[str, float]
    max_window: int
    protocols: list[str]
    slo_classes: dict[str, float | None]


class Model(_Answer):
    """The served model; ``max_model_len`` is its context in tokens."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int
    outrider: ModelOutrider


class Models(_Answer):
    """All that are served: one."""

    object: Literal["list"]
    data: list[Model]


class Tokenized(_Answer):
    """vLLM's. ``token_strs`` are as the vocabulary has them."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(_Answer):
    """vLLM's."""

    prompt: str


class Version(_Answer):
    """Outrider's."""

    version: str


class Health(_Answer):
    """The process answers."""

    status: Literal["ok"]


class Ready(_Answer):
    """Whether responses can be made now, and more about it."""

    ready: bool


class Status(_Answer):
    """What the service is doing; ``outrider top`` draws it."""


ANSWERS: tuple[type[BaseModel], ...] = (
    *(Error, ChatCompletion, ChatCompletionChunk, Completion, CompletionChunk, Model, Models),
    *(Tokenized, Detokenized, Version, Health, Ready, Status),
)


def answer_schemas() -> dict[str, Schema]:
    """By name; references are to a document's components."""
    _, whole = models_json_schema([(kind, "validation") for kind in ANSWERS], ref_template=f"{REF}{{model}}")
    schemas: dict[str, Schema] = whole["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
    return schemas
