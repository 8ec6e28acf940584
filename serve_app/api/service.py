"""Interface between the HTTP layer and whatever makes the responses, and the ingress's settings."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from outrider.config.access import HttpConfig
from outrider.config.schema import Config, ModelConfig, StructuredConfig, TracingConfig
from outrider.contracts.requests import GenerationChunk, GenerationRequest, ProtocolName
from outrider.contracts.sampling_defaults import NO_DEFAULTS, SamplingDefaults
from outrider.contracts.slo import BEST_EFFORT, SloClass
from outrider.models.folders import head_path
from outrider.protocols.registry import PROTOCOLS
from outrider.tenants.keys import MAX_CHOICES, Keys, Tenant
from outrider.tenants.quotas import OverQuota, QuotaRequest, RateLeft
from serve_app.api.grammars.pool import GrammarPool
from serve_app.api.openai.reasoning.families import Thinking
from serve_app.api.openai.reasoning.marks import Mark
from serve_app.service_answers import Ready, Status

BODY_DEADLINE_S = 60.0  # for a request's body, counted from the end of its head
READER_DEADLINE_S = 60.0  # after which a client that takes nothing of its response is cut off
KEYS_RELOAD_S = 5.0  # between two readings of the file of keys


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Tokens that enclose the model's reasoning before it answers; ``start`` None: it begins without one."""

    start: int | None
    end: int

    def __contains__(self, token_id: object) -> bool:
        """Whether the token is one of them."""
        return token_id in (self.start, self.end)


@dataclass(frozen=True, slots=True)
class StructuredLimits:
    """Size limits of grammars, and where a grammar begins."""

    max_bytes: int = 64 * 1024  # of a schema, a regular expression or a grammar
    max_nesting: int = 64  # brackets in each other
    max_compile_s: float = 1.0  # of processor time; then the process that compiles is killed
    reasoning: Reasoning | None = None


@dataclass(frozen=True, slots=True)
class RequestLimits:
    model_name: str
    max_context_tokens: int  # prompt and output together
    max_output_tokens: int
    vocab_size: int
    k_max: int
    max_prompt_chars: int  # a longer text is refused without tokenising it
    slo_classes: tuple[SloClass, ...] = (BEST_EFFORT,)  # the first is that of requests without a class
    least_first_token_ms: float = 0.0  # the shortest time to be started that a request may ask for
    judges: bool = False  # whether there is a decision head, so that a response may be verified semantically
    protocols: tuple[ProtocolName, ...] = tuple(PROTOCOLS)  # that a request may name
    drafters: Mapping[str, bool] = field(default_factory=dict)  # groups with devices, and whether they are trusted
    restricted: bool = False  # whether there may be other groups, which must not receive the prompt
    max_choices: int = MAX_CHOICES  # per request
    tenant: str = ""  # name of the request's key; "": none
    account: str = ""  # charged for the request: hash of the key's name or of the client's address
    token_map: str = ""  # hash of the token map
    defaults: SamplingDefaults = NO_DEFAULTS  # for parameters that a request does not set
    structured: StructuredLimits = field(default_factory=StructuredLimits)
    thinking: Thinking | None = None  # how the model marks its reasoning in chats
    tool_format: str = ""  # form of the model's tool calls, by its name in ``openai.tools.formats``; "": none
    tool_marks: tuple[Mark, ...] = ()  # that it is written with
    fingerprint: str = ""  # of what outputs depend on besides a request: ``system_fingerprint``
    objectives: Mapping[str, str] = field(default_factory=dict)  # class of each objective
    strict_fields: bool = False  # ``http.strict_fields``


@dataclass(frozen=True, slots=True)
class AuthSettings:
    keys_file: str
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    reload_s: float = KEYS_RELOAD_S


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The ingress's piece of the configuration."""

    model: ModelConfig
    max_output_tokens: int
    k_max: int
    http: HttpConfig = field(default_factory=HttpConfig)
    max_requests: int = 1000  # at a time in one ingress, without reads; more are refused at once
    max_body_bytes: int = 4 * 2**20
    body_deadline_s: float = BODY_DEADLINE_S
    reader_deadline_s: float = READER_DEADLINE_S
    start_deadline_s: float = 300.0
    first_chunk_deadline_s: float = 400.0
    next_chunk_deadline_s: float = 400.0
    drain_s: float | None = 10.0  # after which responses of a draining coordinator move; None: never
    namespace: str = "outrider"  # of the fleet
    slo_classes: tuple[SloClass, ...] = (BEST_EFFORT,)
    objectives: Mapping[str, str] = field(default_factory=dict)  # class of each of llm-d's objectives
    max_failures: int = 100  # of a response in a row, without a chunk between them
    judges: bool = False  # as in ``RequestLimits``
    protocols: tuple[ProtocolName, ...] = tuple(PROTOCOLS)
    drafters: Mapping[str, bool] = field(default_factory=dict)
    auth: AuthSettings | None = None  # None: no keys are needed
    reads_need_key: bool = False  # for /status and /metrics; never for probes
    structured: StructuredConfig = field(default_factory=StructuredConfig)
    open_to_all: bool = False  # whether clients of other machines need no key
    tracing: TracingConfig = field(default_factory=TracingConfig)

    @classmethod
    def from_config(cls, config: Config) -> "ServiceSettings":
        keys, groups = config.auth.keys_file, tuple(group.name for group in config.drafters)
        found = cls(
            model=config.model,
            max_output_tokens=config.limits.max_output_tokens,
            k_max=config.speculation.k_max,
            start_deadline_s=config.limits.verifier_start_deadline_s + config.limits.verifier_deadline_s,
            namespace=config.cluster.namespace,
            judges=any(
                group.drafts
                and group.trusted
                and head_path(group.decision_head, config.model.target, group.model) is not None
                for group in config.drafters
            ),
            drafters={group.name: group.trusted for group in config.drafters if group.drafts},
            auth=None if keys is None else AuthSettings(keys, (), groups, KEYS_RELOAD_S),
            body_deadline_s=BODY_DEADLINE_S,
            reader_deadline_s=READER_DEADLINE_S,
            open_to_all=config.open_to_all,
        )
        return found.with_reloadable(config)

    def with_reloadable(self, config: Config) -> "ServiceSettings":
        """Replace the reloadable settings by those of a configuration that differs in nothing else."""
        limits = config.limits
        return replace(
            self,
            max_output_tokens=limits.max_output_tokens,
            k_max=config.speculation.k_max,
            model=config.model,
            http=config.http,
            max_body_bytes=limits.max_body_mib * 2**20,
            first_chunk_deadline_s=limits.first_chunk_deadline_s,
            next_chunk_deadline_s=limits.first_chunk_deadline_s,
            drain_s=limits.drain_s,
            slo_classes=config.slo.slo_classes,
            objectives=config.slo.objectives,
            protocols=config.speculation.protocols,
            auth=self.auth and replace(self.auth, classes=tuple(slo.name for slo in config.slo.classes)),
            reads_need_key=config.auth.reads == "key",
            structured=config.structured,
            tracing=config.tracing,
        )


Pass = Callable[[int], None]  # to be called when a request has ended, with its tokens, of prompts and responses


class Gate(Protocol):
    """Access by API keys; a service that needs none has no gate."""

    @property
    def keys(self) -> Keys: ...

    async def enter(self, tenant: Tenant) -> OverQuota | None:
        """Count a request of which only the key is known, or return why it is refused."""
        ...

    async def ask(self, tenant: Tenant, asked: QuotaRequest) -> Pass | OverQuota:
        """Admit the generations of a counted request, or return why they are refused."""
        ...

    async def left(self, tenant: Tenant) -> Mapping[str, RateLeft]:
        """What is left of a key's rates; empty if it has none, or if it is not known now."""
        ...


class Service(Protocol):
    """What the HTTP layer needs: a coordinator's interface, and facts about the model.

    ``settings`` and ``limits`` are replaced when reloadable settings change: each request reads them once.
    """

    settings: ServiceSettings
    limits: RequestLimits
    tokenizer: PreTrainedTokenizerBase  # the target's
    grammars: GrammarPool  # validates those of requests

    @property
    def gate(self) -> Gate | None: ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Make a response; closing the generator cancels it."""
        ...

    async def ready(self) -> Ready:
        """Ask whether responses can be made now."""
        ...

    async def status(self) -> Status:
        """State of the service: its coordinators and drafters, with counters since their start."""
        ...

    @property
    def load(self) -> int: ...

    def first_token_phase(self, phase: str, seconds: float) -> None:
        """Record a part of the time to a first token."""
        ...

    def used(self, key: str, *, prompt_tokens: int, generation_tokens: int) -> None:
        """Count what an ended request took, for the name of its API key."""
        ...

    async def metrics(self) -> bytes:
        """This ingress's metrics in Prometheus's text format."""
        ...
