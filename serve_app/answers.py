"""What the API answers, as JSON: its writers are held to these types, and ``/openapi.json`` is made of them.

Clients are to pass over fields they do not know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict  # pydantic takes ``typing``'s from Python 3.12 on

from actors.messages import CoordinatorReport, DrafterStatus
from outrider.contracts.requests import FinishReason, PlanEstimate, TokenOrigin
from outrider.contracts.verifying import KvUsage
from outrider.scheduling.attribution import ViolationCause

ChatFinish = FinishReason | Literal["tool_calls"]  # why a chat's choice ended


@dataclass(frozen=True, slots=True)
class FieldsOf:
    """Says of an object that it has a dataclass's fields, as ``asdict`` writes them."""

    kind: type

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic asks for it."""
        return handler.generate_schema(self.kind)


class ErrorDetail(TypedDict):
    """``param`` is the path of the field that is at fault, if one is."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(TypedDict):
    """OpenAI's form, for every error; on a stream that has begun an event of its own."""

    error: ErrorDetail


class PayloadBits(TypedDict):
    """Of messages from devices, and to them."""

    up: int
    down: int


class SpanDetail(TypedDict):
    """A piece of text and who proposed it."""

    text: str
    origin: TokenOrigin


class TokenDetail(TypedDict):
    """A token, the text that it makes visible, which may be empty, and who proposed it."""

    id: int
    text: str
    origin: TokenOrigin


class RoundDetail(TypedDict):
    """How a round was made, and where its time went; ``protocol`` null: nothing was drafted."""

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
    """``spans`` where ``outrider.spans`` asks for them, ``tokens`` and ``rounds`` where ``outrider.details`` does."""

    spans: list[SpanDetail]
    tokens: list[TokenDetail]
    rounds: list[RoundDetail]


class ChoiceExtension(TypedDict):
    """What a choice, or a piece of one, has beyond OpenAI's fields."""

    outrider: NotRequired[ChoiceDetails]


class TopLogprob(TypedDict):
    """One token, as it is spelled."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """A token of the answer, and the likeliest in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    """``choices[].logprobs`` of a chat."""

    content: list[TokenLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    """``choices[].logprobs`` of a completion; null in a list: of a prompt's first token nothing is known."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptDetails(TypedDict):
    """Of a prompt's tokens."""

    cached_tokens: int


class CompletionDetails(TypedDict):
    """Of draft tokens."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class LateRounds(TypedDict):
    """Rounds that were slower than promised, by cause."""

    queue: int
    compute: int


_Class = TypedDict("_Class", {"class": str})


class SloUsage(_Class):
    """What was promised and given; ``preferred_class`` where that is another class than was given."""

    preferred_class: NotRequired[str]
    promised_tokens_per_s: float | None
    achieved_tokens_per_s: float | None
    kept: bool
    cause: ViolationCause | None
    times_behind: int
    late_rounds: LateRounds


class VerificationUsage(TypedDict):
    """More of it where it may be semantic. ``overrides``: by choice, at which of its tokens a mismatch passed."""

    verification: Literal["lossless", "semantic"]
    reproducible: NotRequired[Literal[False]]
    judged_tokens: NotRequired[int]
    overrides: NotRequired[list[list[int]]]


class ExplainedRound(TypedDict):
    """Why a round was made as it was."""

    chosen: Annotated[dict[str, Any], FieldsOf(PlanEstimate)]
    runner_up: Annotated[dict[str, Any], FieldsOf(PlanEstimate)] | None
    reason: str


class ExplainedUsage(TypedDict):
    """``choices`` of rounds, the last ones, where ``outrider.explain`` asks for them."""

    choices: NotRequired[list[ExplainedRound]]


class OutriderUsage(VerificationUsage, ExplainedUsage):
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
    slo: SloUsage


class TokenUsage(TypedDict):
    """Tokens so far, on an event amid a stream."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionUsage(TokenUsage):
    """OpenAI's, and our own."""

    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
    outrider: OutriderUsage


class FunctionCall(TypedDict):
    """``arguments`` are JSON, as the model wrote it."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """A tool that the model calls."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class FunctionCallDelta(TypedDict):
    """``name`` where a call begins; its arguments come piece by piece."""

    name: NotRequired[str]
    arguments: str


class ToolCallDelta(TypedDict):
    """A piece of the call that has this index; ``id`` and ``type`` where it begins."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionCallDelta


class AssistantMessage(TypedDict):
    """The answer; ``content`` is null where it is calls of tools and nothing else."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[ToolCall]]


class ChatChoice(ChoiceExtension):
    """One of ``n``."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish


class CompletionChoice(ChoiceExtension):
    """One of ``n`` for each prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(TypedDict):
    """A chat's answer as a whole."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class Completion(TypedDict):
    """A completion as a whole."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class MessageDelta(TypedDict, total=False):
    """A piece of a message: its beginning, text, or calls of tools; nothing where it ends."""

    role: Literal["assistant"]
    content: str
    tool_calls: list[ToolCallDelta]


class ChatChunkChoice(ChoiceExtension):
    """What an event adds to a choice."""

    index: int
    delta: MessageDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish | None


class CompletionChunkChoice(ChoiceExtension):
    """What an event adds to a choice."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class ChunkUsage(TypedDict):
    """What an event tells of the usage: all with the last one, or tokens with each, where that is asked for."""

    usage: NotRequired[CompletionUsage | TokenUsage | None]


class ChatCompletionChunk(ChunkUsage):
    """An event of a streamed chat; without choices it tells the usage alone."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]


class CompletionChunk(ChunkUsage):
    """An event of a streamed completion; without choices it tells the usage alone."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]


Chunk = ChatCompletionChunk | CompletionChunk


class ModelOutrider(TypedDict):
    """What may be asked of it. ``sampling`` is what a request that says nothing is sampled by."""

    sampling: dict[str, float]
    max_window: int
    protocols: Sequence[str]
    slo_classes: dict[str, float | None]


class Model(TypedDict):
    """The served model; ``max_model_len`` is its context in tokens."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int
    outrider: ModelOutrider


class ModelList(TypedDict):
    """All that are served: one."""

    object: Literal["list"]
    data: list[Model]


class Tokenized(TypedDict):
    """vLLM's. ``token_strs`` are as the vocabulary has them; null: of an id that it has not."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None


class Detokenized(TypedDict):
    """vLLM's."""

    prompt: str


class Version(TypedDict):
    """Outrider's."""

    version: str


class Health(TypedDict):
    """The process answers."""

    status: Literal["ok"]


class Ready(TypedDict):
    """Whether responses can be made now.

    The rest is what a coordinator tells, or the ``reason`` why none was asked.
    """

    ready: bool
    verifier: NotRequired[Literal["answers", "does not answer"]]
    reason: NotRequired[str]
    max_context_tokens: NotRequired[int]
    generations: NotRequired[int]
    queued_blocks: NotRequired[int]
    kv: NotRequired[Annotated[dict[str, Any], FieldsOf(KvUsage)] | None]
    verifier_idle_s: NotRequired[float]


class Status(TypedDict):
    """What the service is doing, counted since its coordinators began; ``outrider top`` draws it."""

    model: str
    drafters: Sequence[Annotated[dict[str, Any], FieldsOf(DrafterStatus)]]
    coordinators: Sequence[Annotated[dict[str, Any], FieldsOf(CoordinatorReport)]]
