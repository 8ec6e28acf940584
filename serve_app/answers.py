"""Types of the API's JSON answers: writers are checked against them, and ``/openapi.json`` is generated from them.

Clients must ignore fields they do not know.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict  # pydantic accepts ``typing``'s only from Python 3.12 on

from outrider.contracts.requests import FinishReason, PlanEstimate, TokenOrigin
from outrider.scheduling.attribution import ViolationCause

ServiceTier = Literal["default", "flex", "priority"]
ChatFinish = FinishReason | Literal["tool_calls"]  # why a chat's choice ended


@dataclass(frozen=True, slots=True)
class FieldsOf:
    """Marks an object whose fields are those of a dataclass, as ``asdict`` writes them."""

    kind: type

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook for the schema."""
        return handler.generate_schema(self.kind)


class ErrorDetail(TypedDict):
    """``param`` is the path of the offending field, if there is one."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(TypedDict):
    """OpenAI's form of every error; in a stream that has begun it is an event."""

    error: ErrorDetail


class PayloadBits(TypedDict):
    """Bits of messages from devices (up) and to them (down)."""

    up: int
    down: int


class SpanDetail(TypedDict):
    """A piece of text and who proposed it."""

    text: str
    origin: TokenOrigin


class TokenDetail(TypedDict):
    """A token, the text it makes visible (may be empty), and who proposed it."""

    id: int
    text: str
    origin: TokenOrigin


class RoundDetail(TypedDict):
    """Plan and timing of a round; ``protocol`` null: nothing was drafted."""

    protocol: str | None
    drafted_tokens: int
    accepted_tokens: int
    trimmed_tokens: int
    committed_tokens: int
    payload_bits: PayloadBits
    ended_ms: float
    phases_ms: dict[str, float]
    beside_ms: float


class ChoiceDetails(TypedDict, total=False):
    """``spans`` if ``outrider.spans`` is set, ``tokens`` and ``rounds`` if ``outrider.details`` is."""

    spans: list[SpanDetail]
    tokens: list[TokenDetail]
    rounds: list[RoundDetail]


class PromptTokens(TypedDict):
    """vLLM's, if ``return_token_ids`` is set; in a stream with the first event."""

    prompt_token_ids: NotRequired[list[int]]


class ChoiceExtension(TypedDict):
    """Fields of a choice, or of a piece of one, beyond OpenAI's."""

    outrider: NotRequired[ChoiceDetails]
    token_ids: NotRequired[list[int]]  # vLLM's, if ``return_token_ids`` is set


class TopLogprob(TypedDict):
    """One token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """A token of the answer, and the most probable alternatives."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    """``choices[].logprobs`` of a chat."""

    content: list[TokenLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    """``choices[].logprobs`` of a completion; an entry is null for a prompt's first token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptDetails(TypedDict):
    cached_tokens: int


class ReasoningTokens(TypedDict):
    """``reasoning_tokens``: of a model that reasons, the marks included."""

    reasoning_tokens: NotRequired[int]


class CompletionDetails(ReasoningTokens):
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class LateRounds(TypedDict):
    """Rounds slower than promised, by cause."""

    queue: int
    compute: int


_Class = TypedDict("_Class", {"class": str})


class SloUsage(_Class):
    """The class that was given and how its promise was kept; ``preferred_class`` if another one was preferred."""

    preferred_class: NotRequired[str]
    promised_tokens_per_s: float | None
    achieved_tokens_per_s: float | None
    kept: bool
    cause: ViolationCause | None
    times_behind: int
    late_rounds: LateRounds


class VerificationUsage(TypedDict):
    """Judged mismatches, if semantic verification was allowed. ``overrides``: per choice, positions of passed ones."""

    verification: Literal["lossless", "semantic"]
    reproducible: NotRequired[Literal[False]]
    judged_tokens: NotRequired[int]
    overrides: NotRequired[list[list[int]]]


class ExplainedRound(TypedDict):
    """The plan of a round, and the reason for it."""

    chosen: Annotated[dict[str, Any], FieldsOf(PlanEstimate)]
    runner_up: Annotated[dict[str, Any], FieldsOf(PlanEstimate)] | None
    reason: str


class ExplainedUsage(TypedDict):
    """``choices``: plans of the last rounds, if ``outrider.explain`` is set."""

    choices: NotRequired[list[ExplainedRound]]


class OutriderUsage(VerificationUsage, ExplainedUsage):
    """How a response was made. ``sampling``: temperature, and other parameters that differ from their neutral value."""

    rounds: int
    speculative_rounds: int
    drafted_tokens: int
    accepted_tokens: int
    trimmed_tokens: int
    protocols: dict[str, int]
    payload_bits: PayloadBits
    lossless: bool
    sampling: dict[str, float]
    slo: SloUsage


class TokenUsage(TypedDict):
    """Tokens so far, on an event within a stream."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionUsage(TokenUsage):
    """OpenAI's fields, and ``outrider``."""

    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
    outrider: OutriderUsage


class FunctionCall(TypedDict):
    """``arguments`` is JSON, as the model wrote it."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: FunctionCall


class FunctionCallDelta(TypedDict):
    """``name`` is set when a call begins; arguments come piece by piece."""

    name: NotRequired[str]
    arguments: str


class ToolCallDelta(TypedDict):
    """A piece of the call with this index; ``id`` and ``type`` are set when it begins."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionCallDelta


class AssistantMessage(TypedDict):
    """The answer; ``content`` is null if there are only tool calls or reasoning."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: NotRequired[str]
    refusal: None
    tool_calls: NotRequired[list[ToolCall]]


class ChatChoice(ChoiceExtension):
    """One of ``n`` choices."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish


class CompletionChoice(ChoiceExtension, PromptTokens):
    """One of ``n`` choices for each prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class SpeculativeDecoding(TypedDict):
    """vLLM's account of a response's drafts; ``acceptance_histogram[j]``: verified drafts of which j tokens were kept.

    ``mean_acceptance_length`` counts the target's own token of each.
    """

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int


class AnswerMetrics(TypedDict):
    speculative_decoding: SpeculativeDecoding


class AnswerExtension(TypedDict):
    """Fields of an answer besides choices and usage. ``service_tier``: what was given, if one was asked for.

    ``system_fingerprint`` changes with whatever changes outputs; ``metrics``, if anything was drafted, are vLLM's.
    """

    system_fingerprint: NotRequired[str]
    service_tier: NotRequired[ServiceTier]
    metrics: NotRequired[AnswerMetrics]


class ChatCompletion(AnswerExtension, PromptTokens):
    """A whole answer to a chat."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class Completion(AnswerExtension):
    """A whole completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class MessageDelta(TypedDict, total=False):
    """A piece of a message: its role, reasoning, text or tool calls; empty at the end."""

    role: Literal["assistant"]
    reasoning_content: str
    content: str
    tool_calls: list[ToolCallDelta]


class ChatChunkChoice(ChoiceExtension):
    """What an event adds to a choice."""

    index: int
    delta: MessageDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish | None


class CompletionChunkChoice(ChoiceExtension, PromptTokens):
    """What an event adds to a choice."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class ChunkUsage(AnswerExtension):
    """Usage on an event: complete on the last one, or token counts on each, if requested."""

    usage: NotRequired[CompletionUsage | TokenUsage | None]


class ChatCompletionChunk(ChunkUsage, PromptTokens):
    """An event of a streamed chat; without choices it has only the usage."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]


class CompletionChunk(ChunkUsage):
    """An event of a streamed completion; without choices it has only the usage."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]


Chunk = ChatCompletionChunk | CompletionChunk
