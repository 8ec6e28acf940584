"""Types of answers and events of OpenAI's Responses API, as ``serve_app.answers`` has those of chats."""

from typing import Any, Literal

from typing_extensions import TypedDict  # pydantic accepts ``typing``'s only from Python 3.12 on

from serve_app.answers import (
    AnswerExtension,
    ChoiceExtension,
    OutriderUsage,
    PromptTokens,
    TokenLogprob,
)

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(TypedDict):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class ReasoningText(TypedDict):
    type: Literal["reasoning_text"]
    text: str


class OutputMessage(TypedDict):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class ReasoningItem(TypedDict):
    """What the model thought; nothing of it is summarised."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[Any]
    content: list[ReasoningText]


class FunctionCallItem(TypedDict):
    """``arguments`` is JSON, as the model wrote it; ``call_id`` names the call to its output."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


OutputItem = OutputMessage | ReasoningItem | FunctionCallItem


class CachedInput(TypedDict):
    """``cache_write_tokens`` is 0: nothing is kept for a price."""

    cached_tokens: int
    cache_write_tokens: Literal[0]


class ReasoningOutput(TypedDict):
    reasoning_tokens: int


class ResponseUsage(TypedDict):
    """OpenAI's fields, and ``outrider``."""

    input_tokens: int
    input_tokens_details: CachedInput
    output_tokens: int
    output_tokens_details: ReasoningOutput
    total_tokens: int
    outrider: OutriderUsage


class IncompleteDetails(TypedDict):
    reason: Literal["max_output_tokens"]


class ResponseFailure(TypedDict):
    code: str
    message: str


class TextSettings(TypedDict):
    format: dict[str, Any]
    verbosity: str | None


class ReasoningSettings(TypedDict):
    effort: str | None
    summary: str | None


class ResponseSettings(TypedDict):
    """What a request asked for, as its answer repeats it. Nothing is stored."""

    background: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: None
    prompt_cache_key: str | None
    reasoning: ReasoningSettings
    safety_identifier: str | None
    store: Literal[False]
    temperature: float
    text: TextSettings
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    user: str | None


class ModelResponse(ResponseSettings, AnswerExtension, ChoiceExtension, PromptTokens):
    """An answer, whole or as far as it has come."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None


class _ResponseEvent(TypedDict):
    sequence_number: int
    response: ModelResponse


class ResponseBegun(_ResponseEvent, PromptTokens):
    type: Literal["response.created", "response.in_progress"]


class ResponseEnded(_ResponseEvent):
    type: Literal["response.completed", "response.incomplete", "response.failed"]


class _ItemEvent(TypedDict):
    sequence_number: int
    output_index: int


class OutputItemEvent(_ItemEvent):
    type: Literal["response.output_item.added", "response.output_item.done"]
    item: OutputItem


class _PartEvent(_ItemEvent):
    item_id: str
    content_index: Literal[0]


class ContentPartEvent(_PartEvent):
    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputText | ReasoningText


class OutputTextDelta(_PartEvent, ChoiceExtension):
    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: list[TokenLogprob]


class OutputTextDone(_PartEvent):
    type: Literal["response.output_text.done"]
    text: str
    logprobs: list[TokenLogprob]


class ReasoningTextDelta(_PartEvent, ChoiceExtension):
    type: Literal["response.reasoning_text.delta"]
    delta: str


class ReasoningTextDone(_PartEvent):
    type: Literal["response.reasoning_text.done"]
    text: str


class _CallEvent(_ItemEvent):
    item_id: str


class CallArgumentsDelta(_CallEvent, ChoiceExtension):
    type: Literal["response.function_call_arguments.delta"]
    delta: str


class CallArgumentsDone(_CallEvent):
    type: Literal["response.function_call_arguments.done"]
    name: str
    arguments: str


class ErrorEvent(TypedDict):
    """Comes before ``response.failed``, which has the error as well."""

    type: Literal["error"]
    sequence_number: int
    code: str
    message: str
    param: str | None


RESPONSE_EVENTS: tuple[type[Any], ...] = (
    *(ResponseBegun, ResponseEnded, OutputItemEvent, ContentPartEvent, OutputTextDelta, OutputTextDone),
    *(ReasoningTextDelta, ReasoningTextDone, CallArgumentsDelta, CallArgumentsDone, ErrorEvent),
)
