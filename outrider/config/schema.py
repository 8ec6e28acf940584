"""Schema of the configuration: one frozen dataclass per component, which receives nothing else of it.

Field names carry the unit, and types the range; ``__post_init__`` checks what a range cannot express. ``reading`` reads
YAML and turns violations into ``ConfigError``. Values are strict: ``"8"`` is not an integer. ``default.yaml`` explains
every field to operators.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from operator import attrgetter
from pathlib import PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field
from pydantic.dataclasses import dataclass

from outrider.config.access import AuthConfig, HttpConfig
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.gateway import GatewayConfig
from outrider.config.replicas import IngressConfig, VerifierConfig
from outrider.config.values import (
    FORBID,
    Name,
    Number,
    PositiveNumber,
    Probability,
    SchedulingName,
    Seconds,
    TargetDType,
    Text,
    TokensPerSecond,
    Verification,
    Window,
)
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.contracts.requests import DEFAULT_LOOKUP_TOKENS, MAX_LOOKUP_TOKENS, ProtocolName
from outrider.contracts.slo import DEFAULT_CLASSES, SloClass
from outrider.documents.names import NameIn
from outrider.models.generation_config import checked_override
from outrider.protocols.registry import PLAINEST, PROTOCOLS
from outrider.rounds.rules import MUST_USE_DRAFT_DEADLINE_S
from outrider.scheduling.ledger import FIRST_TOKEN_S
from outrider.scheduling.registry import SCHEDULING, Scheduling
from outrider.scheduling.wisp import Wisp
from outrider.selection.modes import DEFAULT_MODES, MODES
from outrider.selection.registry import SELECTION


@dataclass(frozen=True, slots=True, config=FORBID)
class ModelConfig:
    """The target model: what is served."""

    target: Text = "smollm2-135m-instruct"
    served_name: Text | None = None
    dtype: TargetDType = "auto"
    max_context_tokens: PositiveNumber | None = None
    generation_config: Text = "auto"
    override_generation_config: Mapping[Text, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            checked_override(self.override_generation_config)
        except ParameterError as error:
            raise ConfigError("override_generation_config", f"{error.field}: {error.needed}", error.found) from error

    @property
    def public_name(self) -> str:
        """Model name of the API: ``served_name``, else the last part of the target's name."""
        return self.served_name or PurePath(self.target).name or self.target


@dataclass(frozen=True, slots=True, config=FORBID)
class SpeculationConfig:
    """What drafters draft in each round, and which policy decides it."""

    policy: Annotated[str, NameIn(SELECTION)] = "cost_aware"
    protocols: Annotated[tuple[Annotated[ProtocolName, NameIn(PROTOCOLS)], ...], Field(min_length=1)] = tuple(PROTOCOLS)
    modes: Annotated[tuple[Annotated[str, NameIn(MODES)], ...], Field(min_length=1)] = DEFAULT_MODES
    k_max: Annotated[int, Field(strict=True, ge=1, le=64)] = 16
    window: Window | None = None
    drafts_ahead: bool = True
    lookup_window: Annotated[int, Field(strict=True, ge=0, le=MAX_LOOKUP_TOKENS)] = DEFAULT_LOOKUP_TOKENS
    lookup_store_tokens: Annotated[int, Field(strict=True, ge=0, le=2**24)] = 0

    def __post_init__(self) -> None:
        if self.window is not None and self.window > self.k_max:
            raise ConfigError("window", f"at most k_max ({self.k_max})", self.window)
        if SELECTION[self.policy].needs_window and self.window is None:
            raise ConfigError("window", f"a number where policy is {self.policy}", self.window)


@dataclass(frozen=True, slots=True, config=FORBID)
class WireConfig:
    """Encoding of messages between coordinators and drafters (``outrider.contracts.exchanged.WireFormat``)."""

    hidden_field: Literal["fp32", "fp16", "int8"] = "fp16"

    def format(self, vocab_size: int) -> WireFormat:
        return WireFormat(vocab_size, hidden_field=FloatField(self.hidden_field))


@dataclass(frozen=True, slots=True, config=FORBID)
class SloClassConfig:
    name: Name
    tokens_per_s: TokensPerSecond = 0.0
    verification: Verification = "lossless"


@dataclass(frozen=True, slots=True, config=FORBID)
class SloConfig:
    """SLO classes: the token speeds that responses can be promised."""

    classes: Annotated[tuple[SloClassConfig, ...], Field(min_length=1)] = tuple(
        SloClassConfig(known.name, known.tokens_per_s) for known in DEFAULT_CLASSES
    )
    default: Name = DEFAULT_CLASSES[-1].name
    objectives: Mapping[Text, Name] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [known.name for known in self.classes]
        if len(set(names)) < len(names):
            raise ConfigError("classes", "a different name for each class", names)
        if self.default not in names:
            raise ConfigError("default", f"one of {', '.join(names)}", self.default)
        for objective, name in self.objectives.items():
            if name not in names:
                raise ConfigError(f"objectives.{objective}", f"one of {', '.join(names)}", name)

    @property
    def slo_classes(self) -> tuple[SloClass, ...]:
        """The classes as ``SloClass``, the default first."""
        known = [SloClass(one.name, one.tokens_per_s, one.verification == "semantic") for one in self.classes]
        return tuple(sorted(known, key=lambda one: one.name != self.default))


@dataclass(frozen=True, slots=True, config=FORBID)
class SchedulingConfig:
    """Policy that forms verification batches, and what predicts their time."""

    policy: SchedulingName = "slo_aware"
    # promised time from request to first token in classes with a speed; a deadline like others
    first_token_s: Seconds = FIRST_TOKEN_S
    # WISP's delta (eq. 17), of its policies alone; None: as long as predictions err.
    guard_s: Annotated[float, Field(strict=True, ge=0, le=60)] | None = None
    cost_profiles: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if self.guard_s is not None and not isinstance(SCHEDULING[self.policy].policy, Wisp):
            raise ConfigError("guard_s", f"null where policy is {self.policy}, which has no guard time", self.guard_s)

    @property
    def chosen(self) -> Scheduling:
        """The policy, with its guard time, and the rule of its deadlines."""
        found = SCHEDULING[self.policy]
        if self.guard_s is None or not isinstance(found.policy, Wisp):
            return found
        return replace(found, policy=replace(found.policy, guard_s=self.guard_s))


@dataclass(frozen=True, slots=True, config=FORBID)
class AdmissionConfig:
    """Which responses begin where there is not enough capacity; see ``outrider.admission.rules.AdmissionRules``."""

    enabled: bool = True
    max_load: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.8
    max_wait_s: Seconds = 10.0
    best_effort_max_wait_s: Seconds = 300.0


@dataclass(frozen=True, slots=True, config=FORBID)
class LimitsConfig:
    """Limits of requests, and deadlines after which a party counts as failed."""

    max_concurrent_generations: PositiveNumber = 32
    max_queued_generations: Number = 128
    max_output_tokens: PositiveNumber = 4096
    max_body_mib: Annotated[int, Field(strict=True, ge=1, le=1024)] = 4
    drafter_deadline_s: Seconds = 5.0
    verifier_deadline_s: Seconds = 30.0
    verifier_start_deadline_s: Seconds = 300.0
    first_chunk_deadline_s: Seconds = 400.0
    drain_s: Annotated[float, Field(strict=True, ge=3, le=3600)] | None = 10.0  # above the time to apply settings

    def __post_init__(self) -> None:
        """Refuse a deadline that ends a response while its verifier may restart, or a must-use draft may arrive."""
        others = {
            "verifier_start_deadline_s": self.verifier_start_deadline_s,
            "the deadline of a must-use draft": MUST_USE_DRAFT_DEADLINE_S,
        }
        for other, other_s in others.items():
            if self.first_chunk_deadline_s < (least_s := self.verifier_deadline_s + other_s):
                needed = f"at least verifier_deadline_s + {other} ({least_s:g})"
                raise ConfigError("first_chunk_deadline_s", needed, self.first_chunk_deadline_s)


ToolFormatName = Literal[
    "auto", "none", "hermes", "qwen3_xml", "mistral", "mistral_list", "harmony", "pythonic", "llama3_json"
]


@dataclass(frozen=True, slots=True, config=FORBID)
class StructuredConfig:
    """How the model marks reasoning and tool calls in its answers."""

    reasoning_end: Text | None = None
    tool_format: ToolFormatName = "auto"


@dataclass(frozen=True, slots=True, config=FORBID)
class TracingConfig:
    """Sampling and export of traces."""

    enabled: bool = False
    endpoint: Text | None = None
    sample_ratio: Probability = 0.05

    def __post_init__(self) -> None:
        if self.endpoint is not None and not _is_http(self.endpoint):
            needed = "the URL of a collector that takes OTLP over HTTP, such as http://collector:4318"
            raise ConfigError("endpoint", needed, self.endpoint)


@dataclass(frozen=True, slots=True, config=FORBID)
class ClusterConfig:
    """The Ray cluster that ``outrider serve`` starts on this machine."""

    namespace: Name = "outrider"
    num_cpus: PositiveNumber = 8


@dataclass(frozen=True, slots=True, config=FORBID)
class Config:
    """The whole configuration file."""

    model: ModelConfig = field(default_factory=ModelConfig)
    drafters: tuple[DrafterGroupConfig, ...] = field(default_factory=lambda: (DrafterGroupConfig(name="embedded"),))
    verifiers: VerifierConfig = field(default_factory=VerifierConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    wire: WireConfig = field(default_factory=WireConfig)
    slo: SloConfig = field(default_factory=SloConfig)
    scheduling: SchedulingConfig = field(default_factory=SchedulingConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    structured: StructuredConfig = field(default_factory=StructuredConfig)
    ingress: IngressConfig = field(default_factory=IngressConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    def __post_init__(self) -> None:
        """Refuse two groups of one name: actors and metrics are named after them."""
        names = [group.name for group in self.drafters]
        if len(set(names)) < len(names):
            raise ConfigError("drafters", "a different name for each group", names)
        self._check_waits()

    def _check_waits(self) -> None:
        """Refuse admission waits longer than the deadline of a client's first chunk."""
        longest_s = self.limits.first_chunk_deadline_s
        for name in ("max_wait_s", "best_effort_max_wait_s"):
            found_s = getattr(self.admission, name)
            if found_s >= longest_s:
                needed = f"less than limits.first_chunk_deadline_s ({longest_s:g})"
                raise ConfigError(f"admission.{name}", needed, found_s)

    def check_together(self, *, is_served: bool = False) -> "Config":
        """Refuse what lacks its other half. ``is_served``: on a cluster, not by `outrider serve`, which makes some."""
        gateway, protocols, http = self.gateway, self.speculation.protocols, self.http
        groups = [group for group in self.drafters if group.drafts]
        dialled = ", ".join(group.name for group in groups if group.dials_in)
        usable = protocols[: 1 if self.speculation.policy == "fixed" else None]
        chains = bool(groups) and all(group.chains_only for group in groups)
        alone = is_served and gateway.port is not None
        needed = {
            "gateway.port": dialled and not gateway.port and f"a port such as 8443, for {dialled} (from: gateway)",
            "gateway.proxies": gateway.identity_header and not gateway.proxies and "who identity_header is believed of",
            "speculation.protocols": chains
            and PLAINEST not in usable
            and f"{PLAINEST}, as first where policy is fixed",
            "http.allowed_hosts": http.allowed_hosts
            and not http.is_loopback
            and "none where http.host is not loopback",
            "gateway.certificate": alone and not gateway.certificate and "a PEM file, and private_key its key",
            "gateway.devices_file": alone and not gateway.knows_devices and "a file, or client_ca: who may dial",
            "gateway.count": alone and not dialled and "a group from: gateway, or no gateway.port",
        }
        for name in filter(needed.get, needed):
            raise ConfigError(name, str(needed[name]), attrgetter(name)(self))
        return self

    @property
    def open_to_all(self) -> bool:
        """Whether anyone who reaches the port from another machine may use all of the API."""
        return self.auth.keys_file is None and not self.http.is_loopback

    def on_own_host(self) -> "Config":
        """Return it for groups on the service's own machine: these are trusted, unless declared otherwise.

        Devices that dial in are not on it.
        """
        groups = (
            group if group.dials_in else replace(group, trust=group.trust or "trusted") for group in self.drafters
        )
        return replace(self, drafters=tuple(groups))

    @property
    def drafter_count(self) -> int:
        """Number of drafters in the Ray cluster."""
        return sum(group.actors for group in self.drafters)

    @property
    def custom_resources(self) -> dict[str, float]:
        """Ray's custom resources that all drafters and the largest number of verifiers claim."""
        claims = [(group.actors, group.resources) for group in self.drafters]
        claims.append((self.verifiers.most, self.verifiers.resources))
        claims.append((self.gateway.actors, self.gateway.resources))
        total: dict[str, float] = {}
        for count, resources in claims:
            for name, quantity in resources.items():
                total[name] = total.get(name, 0.0) + count * quantity
        return total


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no port
        return False
