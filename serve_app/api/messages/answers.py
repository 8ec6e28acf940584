"""Types of the Messages API's answers, as those in ``serve_app.answers``."""

from typing import Any, Literal, NotRequired, get_args

from typing_extensions import TypedDict  # pydantic accepts ``typing``'s only from Python 3.12 on

from serve_app.answers import OutriderUsage

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
FailureType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "overloaded_error",
    "timeout_error",
    "api_error",
]


class TextAnswer(TypedDict):
    type: Literal["text"]
    text: str


class ThinkingAnswer(TypedDict):
    """``signature`` is a hash of the thinking: clients send both back with the next turn."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUse(TypedDict):
    """``input`` is empty where a block begins; of a call that was cut it has what came of it."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = TextAnswer | ThinkingAnswer | ToolUse


class ThinkingTokens(TypedDict):
    thinking_tokens: int


class MessageUsage(TypedDict):
    """``input_tokens`` are those of the prompt that were not cached; nothing is charged for writing the cache.

    ``outrider`` is added when all of the answer was made.
    """

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: NotRequired[ThinkingTokens]
    outrider: NotRequired[OutriderUsage]


class MessageAnswer(TypedDict):
    """A whole answer. ``stop_sequence`` is the one that ended it, if one did."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageStarted(TypedDict):
    """The first event: the answer without content, its prompt's tokens as if none was cached."""

    type: Literal["message_start"]
    message: MessageAnswer


class PingEvent(TypedDict):
    type: Literal["ping"]


class BlockStarted(TypedDict):
    type: Literal["content_block_start"]
    index: int
    content_block: AnswerBlock


class TextPiece(TypedDict):
    type: Literal["text_delta"]
    text: str


class ThinkingPiece(TypedDict):
    type: Literal["thinking_delta"]
    thinking: str


class SignaturePiece(TypedDict):
    type: Literal["signature_delta"]
    signature: str


class InputPiece(TypedDict):
    type: Literal["input_json_delta"]
    partial_json: str


BlockPiece = TextPiece | ThinkingPiece | SignaturePiece | InputPiece


class BlockContinued(TypedDict):
    type: Literal["content_block_delta"]
    index: int
    delta: BlockPiece


class BlockStopped(TypedDict):
    type: Literal["content_block_stop"]
    index: int


class StopDelta(TypedDict):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageEnded(TypedDict):
    """Why it ended, and the usage of all of it."""

    type: Literal["message_delta"]
    delta: StopDelta
    usage: MessageUsage


class MessageStopped(TypedDict):
    type: Literal["message_stop"]


class FailureCode(TypedDict):
    error_code: Literal["thread_unsupported_request"]


class FailureDetail(TypedDict):
    """``details`` of a ``thread``, upon which Anthropic's clients send the whole dialogue instead."""

    type: FailureType
    message: str
    details: NotRequired[FailureCode]


class MessageFailure(TypedDict):
    """Anthropic's form of every error; in a stream that has begun it is an event."""

    type: Literal["error"]
    error: FailureDetail
    request_id: NotRequired[str]


MessageEvent = (
    MessageStarted
    | PingEvent
    | BlockStarted
    | BlockContinued
    | BlockStopped
    | MessageEnded
    | MessageStopped
    | MessageFailure
)
MESSAGE_EVENTS: tuple[type[Any], ...] = get_args(MessageEvent)


class TokenCount(TypedDict):
    """``POST /v1/messages/count_tokens``."""

    input_tokens: int
