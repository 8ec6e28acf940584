"""What the HTTP layer stands on: the contract of whatever makes the responses, and its settings."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from outrider.config.schema import Config, StructuredConfig, TracingConfig
from outrider.contracts.requests import GenerationChunk, GenerationRequest, ProtocolName
from outrider.contracts.sampling_defaults import NO_DEFAULTS, SamplingDefaults
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.models.folders import head_path
from outrider.protocols.registry import PROTOCOLS
from outrider.tenants.keys import MAX_CHOICES, Keys, Tenant
from outrider.tenants.quotas import OverQuota, QuotaRequest
from serve_app.answers import Ready, Status
from serve_app.api.grammars.pool import GrammarPool


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Tokens between which the model reasons before it answers; ``start`` None: it begins by itself."""

    start: int | None
    end: int

    def __contains__(self, token_id: object) -> bool:
        """Whether it is one of them."""
        return token_id in (self.start, self.end)


@dataclass(frozen=True, slots=True)
class StructuredLimits:
    """How large a grammar may be, and where it begins."""

    max_bytes: int = 64 * 1024
    max_nesting: int = 64
    max_compile_s: float = 1.0
    reasoning: Reasoning | None = None


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
    least_first_token_ms: float = 0.0  # in which a request may ask to be begun
    judges: bool = False  # whether there is a decision head, so that a response may be verified semantically
    protocols: tuple[ProtocolName, ...] = tuple(PROTOCOLS)  # that a request may name
    drafters: Mapping[str, bool] = field(default_factory=dict)  # groups that have any, and whether they are trusted
    restricted: bool = False  # whether there may be other groups, which are not to see the prompt
    max_choices: int = MAX_CHOICES  # of one request
    tenant: str = ""  # whose key it has; "": nobody's
    account: str = ""  # whose share it takes: hash of the key's name or of the client's address
    token_map: str = ""  # hash of what token ids mean here
    defaults: SamplingDefaults = NO_DEFAULTS  # where a request says nothing
    structured: StructuredLimits = field(default_factory=StructuredLimits)
    tool_format: str = ""  # how the model writes tool calls, by its name in ``openai.tools``; "": not at all


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Where API keys are, and what they may name."""

    keys_file: str
    reload_s: float
    classes: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The ingress's piece of the configuration."""

    model_name: str
    target: str  # name or path, for its tokenizer
    max_output_tokens: int
    k_max: int
    generation_config: str = "vllm"  # as of ``read_sampling_defaults``
    override_generation_config: Mapping[str, Any] = field(default_factory=dict)
    max_requests: int = 1000  # at a time in one ingress, beside what is only read; more are refused at once
    max_body_bytes: int = 4 * 2**20
    body_deadline_s: float = 60.0  # from the end of a request's head
    reader_deadline_s: float = 60.0  # for which a client may take nothing of its response
    keep_alive_s: float | None = 15.0  # of silence on a stream until a comment is sent; None: none is
    start_deadline_s: float = 300.0
    first_chunk_deadline_s: float = 400.0
    next_chunk_deadline_s: float = 400.0
    drain_s: float | None = 10.0  # after which responses of a coordinator that is drained go on elsewhere; None: never
    namespace: str = "outrider"  # of the fleet
    slo_classes: tuple[SloClass, ...] = (BEST_EFFORT,)
    max_failures: int = 100  # of a response in a row, without a chunk between them
    judges: bool = False  # as of ``RequestLimits``
    least_first_token_ms: float = 0.0  # likewise
    protocols: tuple[ProtocolName, ...] = tuple(PROTOCOLS)
    drafters: Mapping[str, bool] = field(default_factory=dict)
    auth: AuthSettings | None = None  # None: everybody may ask
    cors_origins: tuple[str, ...] = ()  # whose pages' scripts may ask; "*": anybody's
    reads_need_key: bool = False  # /status and /metrics do; probes never
    allowed_hosts: tuple[str, ...] | None = None  # that requests may be for; None: any
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks whose X-Forwarded-For is believed
    structured: StructuredConfig = field(default_factory=StructuredConfig)
    open_to_all: bool = False  # whether everybody may who is not on this machine
    tracing: TracingConfig = field(default_factory=TracingConfig)

    @classmethod
    def from_config(cls, config: Config) -> "ServiceSettings":
        """Take what concerns the ingress."""
        found = cls(
            model_name=config.model.public_name,
            target=config.model.target,
            max_output_tokens=config.limits.max_output_tokens,
            k_max=config.speculation.k_max,
            generation_config=config.model.generation_config,
            start_deadline_s=config.limits.verifier_start_deadline_s + config.limits.verifier_deadline_s,
            namespace=config.cluster.namespace,
            judges=any(
                group.count
                and group.trusted
                and head_path(group.decision_head, config.model.target, group.model) is not None
                for group in config.drafters
            ),
            drafters={group.name: group.trusted for group in config.drafters if group.count},
            open_to_all=config.open_to_all,
        )
        return found.with_reloadable(config)

    def with_reloadable(self, config: Config) -> "ServiceSettings":
        """The same with the light settings of a configuration that differs in nothing else."""
        limits = config.limits
        return replace(
            self,
            max_output_tokens=limits.max_output_tokens,
            k_max=config.speculation.k_max,
            override_generation_config=config.model.override_generation_config,
            max_body_bytes=limits.max_body_mib * 2**20,
            body_deadline_s=limits.body_deadline_s,
            reader_deadline_s=limits.reader_deadline_s,
            keep_alive_s=config.http.keep_alive_s,
            first_chunk_deadline_s=limits.first_chunk_deadline_s,
            next_chunk_deadline_s=limits.next_chunk_deadline_s,
            drain_s=limits.drain_s,
            slo_classes=config.slo.slo_classes,
            least_first_token_ms=config.slo.least_first_token_ms,
            protocols=config.speculation.protocols,
            auth=auth_settings(config),
            cors_origins=config.http.cors_origins,
            reads_need_key=config.auth.reads == "key",
            allowed_hosts=config.http.accepted_hosts,
            trusted_proxies=config.http.trusted_proxies,
            structured=config.structured,
            tracing=config.tracing,
        )


def auth_settings(config: Config) -> AuthSettings | None:
    """What a configuration says of keys; None: there are none."""
    if config.auth.keys_file is None:
        return None
    return AuthSettings(
        config.auth.keys_file,
        config.auth.reload_s,
        classes=tuple(slo.name for slo in config.slo.classes),
        groups=tuple(group.name for group in config.drafters),
    )


class Pass(Protocol):
    """A request that was let in."""

    def settle(self, tokens: int) -> None:
        """It is over, and took so many tokens of prompts and responses."""
        ...


class Gate(Protocol):
    @property
    def keys(self) -> Keys | None:
        """Whoever has one may ask; None: everybody."""
        ...

    async def enter(self, tenant: Tenant) -> OverQuota | None:
        """Count a request of which nothing is known yet but whose it is, or say why it may not go on."""
        ...

    async def ask(self, tenant: Tenant, asked: QuotaRequest) -> Pass | OverQuota:
        """Let in the generations of a request that was counted, or say why not."""
        ...


class Service(Protocol):
    """What the HTTP layer needs: the contract of a coordinator, and the facts about the model.

    ``settings`` and ``limits`` are replaced where light settings change: a request looks at them once.
    """

    settings: ServiceSettings
    limits: RequestLimits
    tokenizer: PreTrainedTokenizerBase  # the target's
    grammars: GrammarPool  # validates those of requests

    @property
    def gate(self) -> Gate:
        """Who may ask, and how much."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Make a response; closing the generator cancels it."""
        ...

    async def ready(self) -> Ready:
        """Ask whether responses can be made now."""
        ...

    async def status(self) -> Status:
        """What the service is doing: its coordinators and drafters, with counters since their start."""
        ...

    def metrics(self) -> bytes:
        """This ingress's metrics in Prometheus's text format."""
        ...
