"""Anthropic's Messages API as data: request bodies. What a field means for a chat says ``reading``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from serve_app.api.openai.bodies import (
    MAX_MESSAGES,
    MAX_METADATA,
    MAX_PARTS,
    MAX_STOP_STRINGS,
    MAX_TOOLS,
    CacheControl,
    Described,
    GenerationBody,
    OutriderOptions,
    StopString,
    User,
    with_fields_of,
)

_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True)


class TextInput(BaseModel):
    """A text, in any message, in ``system`` or in a tool's result."""

    model_config = _STRICT
    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None  # without effect: equal prefixes are cached anyway
    citations: Annotated[list[Described], Field(fail_fast=True, max_length=MAX_PARTS)] | None = None  # without effect


class ThinkingInput(BaseModel):
    """Reasoning of an earlier answer; the signature says nothing here."""

    model_config = _STRICT
    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingInput(BaseModel):
    """Reasoning that only Anthropic's models can read: passed over."""

    model_config = _STRICT
    type: Literal["redacted_thinking"]
    data: str


class ToolUseInput(BaseModel):
    """A call of an earlier answer."""

    model_config = _STRICT
    type: Literal["tool_use"]
    id: str
    name: str
    input: Described
    cache_control: CacheControl | None = None
    caller: Described | None = None  # without effect, as only the model itself calls


class ToolResultInput(BaseModel):
    """What a call came to; ``is_error`` is not told to the model, the content is."""

    model_config = _STRICT
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[TextInput], Field(fail_fast=True, max_length=MAX_PARTS)] = ""
    is_error: bool = False
    cache_control: CacheControl | None = None


AskingBlock = Annotated[TextInput | ToolResultInput, Field(discriminator="type")]
AnsweringBlock = Annotated[
    TextInput | ThinkingInput | RedactedThinkingInput | ToolUseInput, Field(discriminator="type")
]


class AskingTurn(BaseModel):
    """A turn of the user; or instructions within the dialogue, which are texts."""

    model_config = _STRICT
    role: Literal["user", "system"]
    content: str | Annotated[list[AskingBlock], Field(fail_fast=True, max_length=MAX_PARTS)]


class AnsweringTurn(BaseModel):
    """An earlier answer; its thinking is given to the model's template."""

    model_config = _STRICT
    role: Literal["assistant"]
    content: str | Annotated[list[AnsweringBlock], Field(fail_fast=True, max_length=MAX_PARTS)]


InputTurn = Annotated[AskingTurn | AnsweringTurn, Field(discriminator="role")]


class ToolInput(BaseModel):
    """A tool of the client's own. The last fields have no effect."""

    model_config = _STRICT
    name: str
    input_schema: Described
    description: str | None = None
    strict: bool | None = None
    type: Literal["custom"] | None = None
    cache_control: CacheControl | None = None
    input_examples: Annotated[list[Described], Field(fail_fast=True, max_length=MAX_PARTS)] | None = None
    eager_input_streaming: bool | None = None
    defer_loading: bool | None = None
    allowed_callers: Annotated[list[str], Field(fail_fast=True, max_length=MAX_METADATA)] | None = None


class ToolSelection(BaseModel):
    """``tool_choice``: whether a tool must be called, and which."""

    model_config = _STRICT
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class ThinkingInstruction(BaseModel):
    """``thinking``. There is no budget but ``max_tokens``; ``adaptive`` leaves it to the chat template's default."""

    model_config = _STRICT
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None  # nothing is summarised


class OutputConfig(BaseModel):
    """``output_config``; ``format``: ``{"type": "json_schema", "schema": ...}``, which the answer keeps to."""

    model_config = _STRICT
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: Described | None = None


class RequestMetadata(BaseModel):
    """``metadata``: the end user, to tell users apart."""

    model_config = _STRICT
    user_id: User | None = None


class CountTokensBody(BaseModel):
    """``POST /v1/messages/count_tokens``: what a prompt is made of."""

    model_config = _STRICT
    model: str
    messages: Annotated[list[InputTurn], Field(min_length=1, fail_fast=True, max_length=MAX_MESSAGES)]
    system: str | Annotated[list[TextInput], Field(fail_fast=True, max_length=MAX_PARTS)] = ""
    tools: Annotated[list[ToolInput], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolSelection | None = None
    thinking: ThinkingInstruction | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: Described | None = None  # vLLM's
    cache_control: CacheControl | None = None  # without effect, like the following
    context_management: Described | None = None
    speed: Literal["standard", "fast"] | None = None


_NOT_OURS = {  # fields of chats that this API has in other words, or not at all
    *("n", "stop", "stream_options", "store", "metadata", "verbosity", "prompt_cache_retention"),
    *("include_stop_str_in_output", "return_token_ids", "request_id", "user", "safety_identifier", "response_format"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
}


@with_fields_of(GenerationBody, leaving=_NOT_OURS)
class MessagesBody(CountTokensBody):
    """``POST /v1/messages``. Those of its fields that are not Anthropic's are chats'."""

    max_tokens: int
    stream: bool = False
    stop_sequences: Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)] = []
    metadata: RequestMetadata | None = None
    service_tier: Literal["auto", "standard_only", "flex", "priority"] | None = None  # the last two are chats'
    inference_geo: str | None = None  # without effect
    outrider: OutriderOptions = OutriderOptions()


MESSAGES_BODIES: tuple[type[BaseModel], ...] = (
    *(
        MessagesBody,
        CountTokensBody,
        AskingTurn,
        AnsweringTurn,
        TextInput,
        ThinkingInput,
        RedactedThinkingInput,
        ToolUseInput,
    ),
    *(ToolResultInput, ToolInput, ToolSelection, ThinkingInstruction, OutputConfig, RequestMetadata),
)
