"""OpenAI's API as data: request bodies. Ranges that are not given here are ``SamplingParams``' and ``to_choices``'."""

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
MAX_OBJECT_FIELDS = 1024  # of an object that a schema, a tool or a format describes
LOOKUP_NEEDED = f"true, false or an integer in 0..{MAX_LOOKUP_TOKENS}"

_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True)
_Body = TypeVar("_Body", bound=BaseModel)
# Each list and object has a largest length, which ``parsing`` looks at first; and one error is told, so no more are
# looked for.
_TokenIds = Annotated[list[int], Field(fail_fast=True, max_length=MAX_TOKEN_IDS)]
_Texts = Annotated[list[str], Field(fail_fast=True, max_length=MAX_PROMPTS)]
_ListsOfTokenIds = Annotated[list[_TokenIds], Field(fail_fast=True, max_length=MAX_PROMPTS)]
_Described = Annotated[dict[str, Any], Field(fail_fast=True, max_length=MAX_OBJECT_FIELDS)]
_User = Annotated[str, Field(max_length=MAX_USER_CHARS)]
_StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


class StreamOptions(BaseModel):
    """``stream_options``. ``continuous_usage_stats`` (vLLM's) puts the tokens so far on every event."""

    model_config = _STRICT
    include_usage: bool = False
    continuous_usage_stats: bool = False


class OutriderOptions(BaseModel):
    """``outrider``: our own options.

    Attributes:
        slo_class: several in order of preference: a later one is taken where there is no room for those before it.
        expansion: fixes the shape of token trees, children per node by depth, ``window`` numbers.
        rows: or their number of nodes: they grow where the drafter is sure, ``window`` deep at most.
        drafters: groups of devices that may be given the prompt, to draft for it; an empty list: none.
    """

    model_config = _STRICT
    window: int | None = None  # fixes the draft tokens per round; 0 drafts nothing
    protocol: str | None = None  # fixes what crosses the link in every round with a draft
    expansion: Annotated[list[int], Field(fail_fast=True, max_length=64)] = []
    rows: int | None = None
    lookup: bool | int | None = None  # whether what the text repeats is looked up in it, or how many tokens at most
    # Whose speed it is promised, or a choice.
    slo_class: str | Annotated[list[str], Field(fail_fast=True, max_length=16)] | None = None
    verification: Literal["lossless", "semantic"] | None = (
        None  # whether mismatches may be judged; else as the class has it
    )
    drafters: Annotated[list[str], Field(fail_fast=True, max_length=64)] | None = None
    explain: bool = False  # whether ``usage`` is to tell why each round was made as it was
    spans: bool = False  # whether to tell of each piece of text who proposed it
    details: bool = False  # whether to tell of each token who proposed it, and of each round where its time went


class TextPart(BaseModel):
    """One part of a message's content."""

    model_config = _STRICT
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a chat. Its parts are joined by newlines, as vLLM does; ``name`` is the chat template's to use."""

    model_config = _STRICT
    role: Literal["system", "user", "assistant", "tool", "developer"]  # the last is OpenAI's newer name of the first
    # Only an assistant's that has called tools may lack it.
    content: str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MAX_PARTS)] = ""
    tool_calls: Annotated[list[_Described], Field(fail_fast=True, max_length=MAX_TOOL_CALLS)] | None = None
    tool_call_id: str | None = None
    name: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None  # which of those in this role

    @property
    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


def _with_sampling_parameters(kind: type[_Body]) -> type[_Body]:
    """``kind`` and a field for each parameter that ``SamplingParams`` declares, of its type and default."""
    types, defaults = get_type_hints(SamplingParams), SamplingParams()
    declared: dict[str, Any] = {name: (types[name], getattr(defaults, name)) for name in SAMPLING_RANGES}
    return create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **declared)


@_with_sampling_parameters
class SampledBody(BaseModel):
    """Which model is to say how much, how often; and how it is sampled."""

    model_config = _STRICT
    model: str
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[int, Field(ge=1, le=MAX_N)] = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: _StopString | Annotated[list[_StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)] = []


class GenerationBody(SampledBody):
    """What completions and chats have in common."""

    logit_bias: Annotated[dict[str, float], Field(fail_fast=True, max_length=MAX_LOGIT_BIAS)] = {}
    seed: int | None = None
    ignore_eos: bool = False
    user: _User | None = None  # who asks; of no meaning to what a response says
    safety_identifier: _User | None = None  # the same, newer
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT_CHARS)] | None = None  # vLLM's
    response_format: _Described | None = None  # read by ``structured``, as are the following
    structured_outputs: _Described | None = None  # vLLM's
    guided_json: _Described | str | bool | None = None  # its older names
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Field(fail_fast=True, max_length=MAX_GUIDED_CHOICES)] | None = None
    guided_grammar: str | None = None
    outrider: OutriderOptions = OutriderOptions()


class CompletionBody(GenerationBody):
    """``POST /v1/completions``."""

    prompt: str | _TokenIds | _Texts | _ListsOfTokenIds
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = None

    @property
    def alternatives(self) -> int | None:
        """How many alternatives to report with each token's log-probability; None reports nothing."""
        return self.logprobs


class ChatBody(GenerationBody):
    """``POST /v1/chat/completions``. ``max_completion_tokens`` is the newer name of ``max_tokens``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True, max_length=MAX_MESSAGES)]
    tools: Annotated[list[_Described], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None  # read by ``tools``
    tool_choice: str | _Described | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] = 0

    @property
    def alternatives(self) -> int | None:
        """The same, of which chats give switch and number apart."""
        return self.top_logprobs if self.logprobs else None
