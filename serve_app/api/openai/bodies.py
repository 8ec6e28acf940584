"""OpenAI's API as data: request bodies. ``SamplingParams`` and ``to_choices`` check the ranges not given here."""

from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from outrider.contracts.requests import MAX_LOOKUP_TOKENS, SAMPLING_RANGES, SamplingParams
from outrider.tenants.keys import MAX_CHOICES

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_N = 16
MAX_SALT_CHARS = 1024
MAX_LOGIT_BIAS = 1024
MAX_TOP_LOGPROBS = 20  # OpenAI's
MAX_NAME_CHARS = 256
MAX_USER_CHARS = 1024
MAX_MESSAGES = 2000
MAX_PARTS = 1000  # of a message
MAX_TOOLS = 128  # OpenAI's
MAX_TOOL_CALLS = 128  # of a message
MAX_PROMPTS = MAX_CHOICES
MAX_TOKEN_IDS = 2**20  # of a prompt; the context is the narrower bound
MAX_GUIDED_CHOICES = 10_000
MAX_STOP_TOKEN_IDS = 128
MAX_PRIORITY = 2**31 - 1
MAX_REQUEST_ID_CHARS = 128
MAX_METADATA = 16  # OpenAI's, as the lengths of their keys and values
MAX_OBJECT_FIELDS = 1024  # of an object that a schema, a tool or a format describes
LOOKUP_NEEDED = f"true, false or an integer in 0..{MAX_LOOKUP_TOKENS}"

_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True)
_Body = TypeVar("_Body", bound=BaseModel)
# ``parsing`` checks the maximum length of each list and object first; one error is reported, so validation stops at
# the first.
_TokenIds = Annotated[list[int], Field(fail_fast=True, max_length=MAX_TOKEN_IDS)]
_Texts = Annotated[list[str], Field(fail_fast=True, max_length=MAX_PROMPTS)]
_ListsOfTokenIds = Annotated[list[_TokenIds], Field(fail_fast=True, max_length=MAX_PROMPTS)]
Described = Annotated[dict[str, Any], Field(fail_fast=True, max_length=MAX_OBJECT_FIELDS)]
Tools = Annotated[list[Described], Field(fail_fast=True, max_length=MAX_TOOLS)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
User = Annotated[str, Field(max_length=MAX_USER_CHARS)]
_Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(fail_fast=True, max_length=MAX_METADATA),
]
CacheControl = Annotated[dict[str, Any], Field(fail_fast=True, max_length=MAX_METADATA)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


class StreamOptions(BaseModel):
    """``stream_options``. ``continuous_usage_stats`` (vLLM's) adds the tokens so far to every event."""

    model_config = _STRICT
    include_usage: bool = False
    continuous_usage_stats: bool = False


class OutriderOptions(BaseModel):
    """``outrider``: our own options.

    Attributes:
        slo_class: one, or several in order of preference: a later one is taken if there is no capacity for the first.
        expansion: fixes the shape of token trees: children per node by depth, ``window`` numbers.
        rows: alternatively their number of nodes: dynamic trees, at most ``window`` deep.
        drafters: groups whose devices may receive the prompt, to draft for it; an empty list: none.
    """

    model_config = _STRICT
    window: int | None = None  # fixes the draft tokens per round; 0 drafts nothing
    protocol: str | None = None  # fixes what crosses the link in every round with a draft
    expansion: Annotated[list[int], Field(fail_fast=True, max_length=64)] = []
    rows: int | None = None
    lookup: bool | int | None = None  # whether to use prompt lookup, or the longest n-gram draft in tokens
    # Class whose speed is promised, or a list to choose from.
    slo_class: str | Annotated[list[str], Field(fail_fast=True, max_length=16)] | None = None
    verification: Literal["lossless", "semantic"] | None = (
        None  # whether mismatches may be judged; None: as the class says
    )
    drafters: Annotated[list[str], Field(fail_fast=True, max_length=64)] | None = None
    explain: bool = False  # whether ``usage`` explains each round's plan
    spans: bool = False  # whether each piece of text names who proposed it
    details: bool = False  # whether each token names who proposed it, and each round its timing


class TextPart(BaseModel):
    """One part of a message's content."""

    model_config = _STRICT
    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None  # Anthropic's; without effect: equal prefixes are cached anyway


class ChatMessage(BaseModel):
    """One message of a chat. Its parts are joined by newlines, as in vLLM; ``name`` is passed to the chat template."""

    model_config = _STRICT
    role: Literal["system", "user", "assistant", "tool", "developer"]  # the last is OpenAI's newer name of the first
    # Only an assistant message with tool calls may lack it.
    content: str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MAX_PARTS)] = ""
    tool_calls: Annotated[list[Described], Field(fail_fast=True, max_length=MAX_TOOL_CALLS)] | None = None
    tool_call_id: str | None = None
    name: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None  # participant within the role
    reasoning_content: str | None = None  # of an earlier answer, for the chat template; or ``reasoning``
    reasoning: str | None = None
    cache_control: CacheControl | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


def _with_sampling_parameters(kind: type[_Body]) -> type[_Body]:
    """Add a field for each parameter that ``SamplingParams`` declares, with its type and default."""
    types, defaults = get_type_hints(SamplingParams), SamplingParams()
    declared: dict[str, Any] = {name: (types[name], getattr(defaults, name)) for name in SAMPLING_RANGES}
    return create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **declared)


@_with_sampling_parameters
class SampledBody(BaseModel):
    """Model, sampling parameters, and number and length of the responses."""

    model_config = _STRICT
    model: str
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[int, Field(ge=1, le=MAX_N)] = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: StopString | Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)] = []


class WithoutEffect(SampledBody):
    """Fields of OpenAI's that change nothing here: nothing is stored, and the prefix cache has bounds of its own."""

    store: bool = False
    metadata: _Metadata | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None


class GenerationBody(WithoutEffect):
    """Common fields of completions and chats."""

    stop_token_ids: Annotated[list[int], Field(fail_fast=True, max_length=MAX_STOP_TOKEN_IDS)] = []
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    return_token_ids: bool = False
    request_id: Annotated[str, Field(min_length=1, max_length=MAX_REQUEST_ID_CHARS)] | None = None  # in the answer's id
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0  # a lower one goes first, as in vLLM
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    prompt_cache_key: User | None = None  # requests of the same are sent to one verifier
    logit_bias: Annotated[dict[str, float], Field(fail_fast=True, max_length=MAX_LOGIT_BIAS)] = {}
    seed: int | None = None
    ignore_eos: bool = False
    user: User | None = None  # the end user; does not affect the response's content
    safety_identifier: User | None = None  # its newer name
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT_CHARS)] | None = None  # vLLM's
    response_format: Described | None = None  # read by ``structured``, like the following
    structured_outputs: Described | None = None  # vLLM's
    guided_json: Described | str | bool | None = None  # older names of the above
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Field(fail_fast=True, max_length=MAX_GUIDED_CHOICES)] | None = None
    guided_grammar: str | None = None
    outrider: OutriderOptions = OutriderOptions()


def with_fields_of(
    source: type[BaseModel], leaving: Collection[str] = frozenset()
) -> Callable[[type[_Body]], type[_Body]]:
    """Add another body's fields, but for some and those that are declared already."""

    def added(kind: type[_Body]) -> type[_Body]:
        own = {*leaving, *kind.model_fields}
        others: dict[str, Any] = {
            name: (info.annotation, info) for name, info in source.model_fields.items() if name not in own
        }
        return create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, __module__=kind.__module__, **others)

    return added


class CompletionBody(GenerationBody):
    """``POST /v1/completions``."""

    prompt: str | _TokenIds | _Texts | _ListsOfTokenIds
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = None

    @property
    def alternatives(self) -> int | None:
        """Number of alternatives reported with each token's log-probability; None reports nothing."""
        return self.logprobs


class ChatBody(GenerationBody):
    """``POST /v1/chat/completions``. ``max_completion_tokens`` is the newer name of ``max_tokens``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True, max_length=MAX_MESSAGES)]
    tools: Tools | None = None  # read by ``tools``
    tool_choice: str | Described | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: int | None = None
    chat_template_kwargs: Described | None = None  # read by ``fields.template``
    reasoning_effort: Effort | None = None
    include_reasoning: bool = True  # whether the answer tells the model's reasoning
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] = 0

    @property
    def alternatives(self) -> int | None:
        """The same; chats have separate fields for switch and number."""
        return self.top_logprobs if self.logprobs else None
