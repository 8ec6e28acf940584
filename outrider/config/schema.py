"""Schema of the configuration: one frozen dataclass per component, which receives nothing else of it.

Field names carry the unit, and types the range; ``__post_init__`` checks what a range cannot express. ``reading`` reads
YAML and turns violations into ``ConfigError``. Values are strict: ``"8"`` is not an integer. ``default.yaml`` explains
every field to operators.
"""

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from ipaddress import ip_address, ip_network
from itertools import accumulate
from operator import mul
from pathlib import PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from outrider.config.device_defaults import BatchSize, batch_size, kv_memory_mib
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.contracts.requests import DEFAULT_LOOKUP_TOKENS, MAX_LOOKUP_TOKENS, ProtocolName
from outrider.contracts.slo import DEFAULT_CLASSES, SloClass
from outrider.documents.names import NameIn
from outrider.drafting.stopping import STOP_KINDS
from outrider.engines.registry import DRAFTERS, VERIFIERS
from outrider.link.profiles import PROFILES
from outrider.models.generation_config import checked_override
from outrider.protocols.registry import PROTOCOLS, growing_protocols
from outrider.scheduling.ledger import FIRST_TOKEN_S
from outrider.scheduling.registry import SCHEDULING
from outrider.selection.modes import DEFAULT_MODES, MODES
from outrider.selection.registry import SELECTION

Text = Annotated[str, Field(strict=True, min_length=1)]
ModelHash = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$", description="64 hex digits, a model's hash")]
Name = Annotated[
    str,
    Field(
        strict=True, pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="a short name of a-z, 0-9, and inside - or _"
    ),
]
Origin = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^/\s]+)$",
        description='an origin such as https://my.page:8443, without a path, or "*"',
    ),
]
HostName = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^(\*|[a-z0-9_.-]+|\[[0-9a-f:.]+\])$",
        description='a host name of lower case, without a port, an IPv6 address in brackets, or "*"',
    ),
]
_NAMES_OF_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Threads = Annotated[int, Field(strict=True, ge=1, le=1024)]
Number = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
PositiveNumber = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Mebibytes = Annotated[int, Field(strict=True, ge=16, le=1_048_576)]
Window = Annotated[int, Field(strict=True, ge=0, le=64)]
Siblings = Annotated[int, Field(strict=True, ge=1, le=16)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400)]
Share = Annotated[float, Field(strict=True, ge=0, le=1_024)]  # of CPUs or GPUs; Ray accepts fractions
Quantity = Annotated[float, Field(strict=True, gt=0, le=1_000_000)]
Verification = Literal["lossless", "semantic"]
Trust = Literal["trusted", "untrusted"]
TokensPerSecond = Annotated[float, Field(strict=True, ge=0, le=100_000)]
Milliseconds = Annotated[float, Field(strict=True, ge=0, le=60_000)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1)]
Weight = Annotated[float, Field(strict=True, ge=0, le=100)]
LossRate = Annotated[float, Field(strict=True, ge=0, le=0.99)]  # of packets

DrafterDType = Literal["auto", "int8", "float32", "bfloat16", "float16"]
TargetDType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["cpu", "cuda"]
Resources = Mapping[Text, Quantity]  # Ray's custom resources
SchedulingName = Annotated[str, NameIn(SCHEDULING)]

_FORBID = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, config=_FORBID)
class ModelConfig:
    """The target model: what is served."""

    target: Text = "smollm2-135m-instruct"
    served_name: Text | None = None
    dtype: TargetDType = "auto"
    max_context_tokens: PositiveNumber | None = None
    generation_config: Text = "auto"
    override_generation_config: Mapping[Text, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse sampling defaults that no request could ask for."""
        try:
            checked_override(self.override_generation_config)
        except ParameterError as error:
            raise ConfigError("override_generation_config", f"{error.field}: {error.needed}", error.found) from error

    @property
    def public_name(self) -> str:
        """Model name of the API: ``served_name``, else the last part of the target's name."""
        return self.served_name or PurePath(self.target).name or self.target


@dataclass(frozen=True, slots=True, config=_FORBID)
class LinkConfig:
    """An emulated link in one of three forms: a profile, a trace file, or figures; ``outrider.assembly.links``."""

    profile: Text | None = None
    trace: Text | None = None
    up_mbps: Quantity | None = None
    down_mbps: Quantity | None = None
    rtt_ms: Milliseconds | None = None
    per_up: LossRate | None = None
    per_down: LossRate | None = None
    jitter_ms: Milliseconds | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown profile, several forms at once, and an incomplete form."""
        needed_figures = {"up_mbps": self.up_mbps, "down_mbps": self.down_mbps, "rtt_ms": self.rtt_ms}
        figures = needed_figures | {"per_up": self.per_up, "per_down": self.per_down, "jitter_ms": self.jitter_ms}
        forms = {"profile": self.profile, "trace": self.trace} | figures
        given = [name for name, value in forms.items() if value is not None]
        if self.profile is not None and self.profile not in PROFILES:
            raise ConfigError("profile", f"one of {', '.join(PROFILES)}", self.profile)
        if not given:
            raise ConfigError("profile", "a name where neither trace nor up_mbps, down_mbps and rtt_ms are given", None)
        if given[0] in {"profile", "trace"}:
            if len(given) > 1:
                raise ConfigError(given[1], f"to be left out where {given[0]} is given", forms[given[1]])
            return
        for name, value in needed_figures.items():
            if value is None:
                raise ConfigError(name, f"a number where {given[0]} is given", value)


@dataclass(frozen=True, slots=True, config=_FORBID)
class StoppingConfig:
    """Stop rule of a group's devices: when they end a draft before its ordered length."""

    rule: Annotated[str, NameIn(STOP_KINDS)] = "never"
    least_acceptance: Probability = 0.5
    drafting_weight: Weight = 1.0
    predictor: Text | None = "auto"


@dataclass(frozen=True, slots=True, config=_FORBID)
class RoundLogConfig:
    """Where a group's devices log rounds for training; see ``outrider.drafting.round_log``."""

    folder: Text
    most_mib: Annotated[int, Field(strict=True, ge=1, le=1_048_576)] = 64

    def __post_init__(self) -> None:
        """Refuse a relative folder: it would depend on where each process is started."""
        if not PurePath(self.folder).is_absolute() and not self.folder.startswith("~"):
            raise ConfigError("folder", "an absolute path, or one that begins with ~", self.folder)


@dataclass(frozen=True, slots=True, config=_FORBID)
class DrafterGroupConfig:
    """Drafters of one kind of device.

    Attributes:
        trust: whether answers may depend on what they report of their drafts; None: decided by where they run.
        model_hash: of the model's files; None: hash the files on the machine that assembles the application.
    """

    name: Name
    trust: Trust | None = None
    engine: Annotated[str, NameIn(DRAFTERS)] = "torch"
    model: Text = "smollm2-135m-drafter"
    model_hash: ModelHash | None = None
    dtype: DrafterDType = "auto"
    device: Device = "cpu"
    count: Number = 1
    resources: Resources = field(default_factory=lambda: {"jetson": 1.0})
    num_cpus: Share = 0.0
    num_gpus: Share = 0.0
    threads: Threads = 1
    max_generations: PositiveNumber = 32
    kv_budget_mib: Mebibytes = 256
    decision_head: Text | None = "auto"
    stopping: StoppingConfig = field(default_factory=StoppingConfig)
    round_log: RoundLogConfig | None = None
    link: LinkConfig | None = None
    emulated_step_ms: Milliseconds = 0.0

    def __post_init__(self) -> None:
        """Refuse a CUDA device without a GPU share: Ray would hide every GPU from the drafter."""
        _check_gpu(self.device, self.num_gpus)

    @property
    def trusted(self) -> bool:
        """Whether it is declared as trusted; by default it is not."""
        return self.trust == "trusted"


@dataclass(frozen=True, slots=True, config=_FORBID)
class ScalingConfig:
    """Number of replicas between ``min`` and ``max``; see ``outrider.scaling.policy.ScalingRules``."""

    min: PositiveNumber = 1
    max: PositiveNumber = 1
    down_after_s: Annotated[float, Field(strict=True, ge=0, le=86_400)] = 300.0
    cold_start_s: Annotated[float, Field(strict=True, gt=0, le=86_400)] = 60.0

    def __post_init__(self) -> None:
        """Refuse a maximum below the minimum."""
        if self.max < self.min:
            raise ConfigError("max", f"at least min ({self.min})", self.max)


@dataclass(frozen=True, slots=True, config=_FORBID)
class VerifierScalingConfig(ScalingConfig):
    """Scaling of verifiers, by promised load."""

    target_load: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.8
    trend_s: Annotated[float, Field(strict=True, gt=0, le=86_400)] = 1200.0


@dataclass(frozen=True, slots=True, config=_FORBID)
class IngressScalingConfig(ScalingConfig):
    """Scaling of ingresses, by the responses that each streams."""

    cold_start_s: Annotated[float, Field(strict=True, gt=0, le=86_400)] = 20.0
    streams: PositiveNumber = 400


@dataclass(frozen=True, slots=True, config=_FORBID)
class VerifierConfig:
    """The verifiers, all alike: each has one target model and its KV."""

    count: PositiveNumber = 1
    autoscaling: VerifierScalingConfig | None = None
    engine: Annotated[str, NameIn(VERIFIERS)] = "torch"
    device: Device = "cpu"
    num_gpus: Share = 0.0
    num_cpus: Share = 1.0
    resources: Resources = field(default_factory=dict)
    threads: Threads = 1
    prefill_threads: Threads = 2
    kv_budget_mib: Mebibytes | None = None
    swap_mib: Annotated[int, Field(strict=True, ge=0, le=2**24)] = 0
    kv_block_tokens: PositiveNumber | None = None
    prefill_chunk_tokens: PositiveNumber | None = None
    max_batch_tokens: PositiveNumber | None = None
    max_batch_blocks: PositiveNumber | None = None
    tensor_parallel_size: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    vllm_options: Mapping[Text, Any] = field(default_factory=dict)  # vLLM's EngineArgs, which validates them
    emulated_pass_ms: Milliseconds = 0.0
    emulated_row_ms: Milliseconds = 0.0
    emulated_reload_s: Annotated[float, Field(strict=True, ge=0, le=3600)] = 0.0

    def __post_init__(self) -> None:
        """Refuse what the engine or its device does not support, and a chunk larger than any batch."""
        _check_gpu(self.device, self.num_gpus)
        _check_begin(self.count, self.autoscaling)
        self._check_engine()
        if not (self.num_cpus or self.num_gpus or self.resources):
            raise ConfigError("num_cpus", "a share above 0 where neither num_gpus nor resources are claimed", 0.0)
        if self.batch.prefill_chunk_tokens > self.batch.max_tokens:
            needed = f"at most max_batch_tokens ({self.batch.max_tokens})"
            raise ConfigError("prefill_chunk_tokens", needed, self.prefill_chunk_tokens)

    @property
    def most(self) -> int:
        """Largest number of verifiers."""
        return self.count if self.autoscaling is None else self.autoscaling.max

    @property
    def batch(self) -> BatchSize:
        """Limits of a forward pass: as configured, else the device's defaults."""
        return batch_size(self.device, self.prefill_chunk_tokens, self.max_batch_tokens, self.max_batch_blocks)

    @property
    def kv_memory_mib(self) -> int | None:
        """``kv_budget_mib``, else the device's default; None: the free memory of a GPU."""
        return kv_memory_mib(self.device) if self.kv_budget_mib is None else self.kv_budget_mib

    @property
    def block_tokens(self) -> int:
        """Positions per KV block: ``kv_block_tokens``, else the engine's default."""
        own = VERIFIERS[self.engine].block_tokens[self.device]
        return own if self.kv_block_tokens is None else self.kv_block_tokens

    def _check_engine(self) -> None:
        kind, size, options = VERIFIERS[self.engine], self.tensor_parallel_size, self.vllm_options
        if size > 1 and not kind.takes_options:
            raise ConfigError("tensor_parallel_size", f"1 where engine is {self.engine}", size)
        if self.swap_mib and not kind.swaps:
            raise ConfigError("swap_mib", f"0 where engine is {self.engine}: only torch copies KV out", self.swap_mib)
        if options and not kind.takes_options:
            raise ConfigError("vllm_options", f"to be left out where engine is {self.engine}", dict(options))
        if self.device == "cuda" and size > 1 and self.num_gpus < size:
            raise ConfigError("num_gpus", f"at least tensor_parallel_size ({size}) where device is cuda", self.num_gpus)
        if kind.takes_multiples and self.block_tokens % (step := kind.block_tokens[self.device]):
            needed = f"a multiple of {step} where engine is {self.engine} and device is {self.device}"
            raise ConfigError("kv_block_tokens", needed, self.kv_block_tokens)


@dataclass(frozen=True, slots=True, config=_FORBID)
class SpeculationConfig:
    """What drafters draft in each round, and which policy decides it."""

    policy: Annotated[str, NameIn(SELECTION)] = "cost_aware"
    protocols: Annotated[tuple[Annotated[ProtocolName, NameIn(PROTOCOLS)], ...], Field(min_length=1)] = tuple(PROTOCOLS)
    modes: Annotated[tuple[Annotated[str, NameIn(MODES)], ...], Field(min_length=1)] = DEFAULT_MODES
    k_max: Annotated[int, Field(strict=True, ge=1, le=64)] = 16
    window: Window | None = None
    expansion: tuple[Siblings, ...] = ()
    rows: Annotated[int, Field(strict=True, ge=0, le=64)] = 0
    drafts_ahead: bool = True
    lookup_window: Annotated[int, Field(strict=True, ge=0, le=MAX_LOOKUP_TOKENS)] = DEFAULT_LOOKUP_TOKENS
    lookup_store_tokens: Annotated[int, Field(strict=True, ge=0, le=2**24)] = 0

    def __post_init__(self) -> None:
        """Refuse a window above ``k_max``, an incomplete fixed choice, and an invalid tree."""
        if self.window is not None and self.window > self.k_max:
            raise ConfigError("window", f"at most k_max ({self.k_max})", self.window)
        if SELECTION[self.policy].needs_window and self.window is None:
            raise ConfigError("window", f"a number where policy is {self.policy}", self.window)
        if self.expansion and len(self.expansion) != self.window:
            raise ConfigError("expansion", f"as many numbers as window ({self.window})", list(self.expansion))
        if sum(accumulate(self.expansion, mul)) > self.k_max:
            raise ConfigError("expansion", f"a tree of at most k_max ({self.k_max}) tokens", list(self.expansion))
        if self.rows:
            self._check_grown()

    def _check_grown(self) -> None:
        """Refuse dynamic trees where the first protocol does not support them."""
        if not PROTOCOLS[self.protocols[0]].grows:
            needed = f"0, or {' or '.join(growing_protocols())} as the first of protocols"
            raise ConfigError("rows", needed, self.rows)
        if self.expansion or not 1 <= (self.window or 0) <= self.rows <= self.k_max:
            needed = f"a number of window ({self.window}) to k_max ({self.k_max}) and no expansion, or 0"
            raise ConfigError("rows", needed, self.rows)


@dataclass(frozen=True, slots=True, config=_FORBID)
class WireConfig:
    """Encoding of messages between coordinators and drafters (``outrider.contracts.exchanged.WireFormat``)."""

    logit_field: FloatField = FloatField.FP16
    scalar_bits: Annotated[int, Field(strict=True, ge=8, le=32)] = 24
    row_field: Literal["fp32", "fp16", "bf16"] = "fp32"
    top_k: Number = 32
    top_rho: Annotated[float, Field(strict=True, gt=0, le=1)] = 1.0
    distinct_siblings: bool = True
    hidden_field: Literal["fp32", "fp16", "int8"] = "fp16"

    def format(self, vocab_size: int) -> WireFormat:
        """Return the wire format for a vocabulary."""
        fields = {name: FloatField(getattr(self, name)) for name in ("row_field", "hidden_field")}
        return WireFormat(vocab_size, **asdict(self) | fields)


@dataclass(frozen=True, slots=True, config=_FORBID)
class SloClassConfig:
    name: Name
    tokens_per_s: TokensPerSecond = 0.0
    verification: Verification = "lossless"


@dataclass(frozen=True, slots=True, config=_FORBID)
class SloConfig:
    """SLO classes: the token speeds that responses can be promised."""

    classes: Annotated[tuple[SloClassConfig, ...], Field(min_length=1)] = tuple(
        SloClassConfig(known.name, known.tokens_per_s) for known in DEFAULT_CLASSES
    )
    default: Name = DEFAULT_CLASSES[-1].name
    least_first_token_ms: Milliseconds = 100.0

    def __post_init__(self) -> None:
        """Refuse two classes of one name, and a default that is not a class."""
        names = [known.name for known in self.classes]
        if len(set(names)) < len(names):
            raise ConfigError("classes", "a different name for each class", names)
        if self.default not in names:
            raise ConfigError("default", f"one of {', '.join(names)}", self.default)

    @property
    def slo_classes(self) -> tuple[SloClass, ...]:
        """The classes as ``SloClass``, the default first."""
        known = [SloClass(one.name, one.tokens_per_s, one.verification == "semantic") for one in self.classes]
        return tuple(sorted(known, key=lambda one: one.name != self.default))


@dataclass(frozen=True, slots=True, config=_FORBID)
class SchedulingConfig:
    """Policy that forms verification batches, and what predicts their time.

    Attributes:
        first_token_s: promised time from request to first token in classes with a speed; a deadline like others.
    """

    policy: SchedulingName = "slo_aware"
    first_token_s: Seconds = FIRST_TOKEN_S
    cost_profiles: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, config=_FORBID)
class AdmissionConfig:
    """Which responses begin where there is not enough capacity; see ``outrider.admission.rules.AdmissionRules``."""

    enabled: bool = True
    max_load: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.8
    best_effort_floor: Annotated[float, Field(strict=True, ge=0, le=0.5)] = 0.05
    max_wait_s: Seconds = 10.0
    best_effort_max_wait_s: Seconds = 300.0


@dataclass(frozen=True, slots=True, config=_FORBID)
class LimitsConfig:
    """Limits of requests, and deadlines after which a party counts as failed."""

    max_concurrent_generations: PositiveNumber = 32
    max_queued_generations: Number = 128
    max_output_tokens: PositiveNumber = 4096
    max_body_mib: Annotated[int, Field(strict=True, ge=1, le=1024)] = 4
    body_deadline_s: Annotated[float, Field(strict=True, gt=0, le=60)] = 60.0
    reader_deadline_s: Annotated[float, Field(strict=True, ge=1, le=3600)] = 60.0
    drafter_deadline_s: Seconds = 5.0
    drafter_last_deadline_s: Seconds = 120.0
    drafter_open_deadline_s: Seconds = 30.0
    verifier_deadline_s: Seconds = 30.0
    verifier_silence_s: Seconds = 1.5
    verifier_start_deadline_s: Seconds = 300.0
    first_chunk_deadline_s: Seconds = 400.0
    next_chunk_deadline_s: Seconds = 400.0
    drain_s: Annotated[float, Field(strict=True, ge=3, le=3600)] | None = 10.0  # above the time to apply settings

    def __post_init__(self) -> None:
        """Refuse deadlines by which a response fails while its verifier may restart, or a must-use draft may arrive."""
        for other in ("verifier_start_deadline_s", "drafter_last_deadline_s"):
            least_s = self.verifier_deadline_s + getattr(self, other)
            for name in ("first_chunk_deadline_s", "next_chunk_deadline_s"):
                found_s = getattr(self, name)
                if found_s < least_s:
                    raise ConfigError(name, f"at least verifier_deadline_s + {other} ({least_s:g})", found_s)


@dataclass(frozen=True, slots=True, config=_FORBID)
class StructuredConfig:
    """Limits on grammars, and how the model marks reasoning and tool calls in its answers."""

    max_schema_kib: Annotated[int, Field(strict=True, ge=1, le=1024)] = 64
    max_nesting: Annotated[int, Field(strict=True, ge=1, le=256)] = 64
    max_compile_ms: Annotated[float, Field(strict=True, gt=0, le=10_000)] = 1000.0
    reasoning_end: Text | None = None
    tool_format: Literal["auto", "none", "hermes", "llama3_json"] = "auto"


@dataclass(frozen=True, slots=True, config=_FORBID)
class IngressConfig:
    """Replicas that answer HTTP and convert between text and tokens."""

    count: PositiveNumber = 1
    autoscaling: IngressScalingConfig | None = None

    def __post_init__(self) -> None:
        """Refuse a count outside of the scaling range."""
        _check_begin(self.count, self.autoscaling)

    @property
    def most(self) -> int:
        """Largest number of replicas."""
        return self.count if self.autoscaling is None else self.autoscaling.max


@dataclass(frozen=True, slots=True, config=_FORBID)
class AuthConfig:
    """Authentication; for the file's form see ``outrider.tenants.keys``."""

    keys_file: Text | None = None
    reload_s: Annotated[float, Field(strict=True, gt=0, le=300)] = 5.0  # the alert on stale keys relies on 300
    reads: Literal["open", "key"] = "open"

    def __post_init__(self) -> None:
        """Refuse to demand keys without a file of keys."""
        if self.reads == "key" and self.keys_file is None:
            raise ConfigError("reads", "open, or a keys_file", self.reads)


@dataclass(frozen=True, slots=True, config=_FORBID)
class HttpConfig:
    """Where and how the API listens."""

    host: Text = "127.0.0.1"
    port: Port = 8000
    keep_alive_s: Annotated[float, Field(strict=True, gt=0, le=86_400)] | None = 15.0
    cors_origins: tuple[Origin, ...] = ()
    allowed_hosts: tuple[HostName, ...] = ()
    trusted_proxies: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        """Refuse trusted proxies that are not addresses or networks."""
        for proxy in self.trusted_proxies:
            try:
                ip_network(proxy, strict=False)
            except ValueError:
                needed = "IP addresses or networks, such as 10.0.0.7 or 10.0.0.0/8"
                raise ConfigError("trusted_proxies", needed, proxy) from None

    @property
    def accepted_hosts(self) -> tuple[str, ...] | None:
        """Accepted host names: on loopback this machine's names and ``allowed_hosts``; None elsewhere: any."""
        if not self.is_loopback:
            return None
        own = f"[{self.host}]" if ":" in self.host else self.host
        return tuple(dict.fromkeys((*_NAMES_OF_LOOPBACK, own, *self.allowed_hosts)))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True, config=_FORBID)
class TracingConfig:
    """Sampling and export of traces."""

    enabled: bool = False
    endpoint: Text | None = None
    sample_ratio: Probability = 0.05
    service_name: Text | None = None

    def __post_init__(self) -> None:
        """Refuse an address that is not an HTTP URL."""
        if self.endpoint is not None and not _is_http(self.endpoint):
            needed = "the URL of a collector that takes OTLP over HTTP, such as http://collector:4318"
            raise ConfigError("endpoint", needed, self.endpoint)


@dataclass(frozen=True, slots=True, config=_FORBID)
class ClusterConfig:
    """The Ray cluster that ``outrider serve`` starts on this machine."""

    namespace: Name = "outrider"
    num_cpus: PositiveNumber = 8
    object_store_mib: Annotated[int, Field(strict=True, ge=80, le=1_048_576)] = 100


@dataclass(frozen=True, slots=True, config=_FORBID)
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

    @property
    def open_to_all(self) -> bool:
        """Whether anyone who reaches the port from another machine may use all of the API."""
        return self.auth.keys_file is None and not self.http.is_loopback

    def on_own_host(self) -> "Config":
        """Return it for groups on the service's own machine: these are trusted, unless declared otherwise."""
        return replace(self, drafters=tuple(replace(group, trust=group.trust or "trusted") for group in self.drafters))

    @property
    def drafter_count(self) -> int:
        """Number of drafters in all groups."""
        return sum(group.count for group in self.drafters)

    @property
    def custom_resources(self) -> dict[str, float]:
        """Ray's custom resources that all drafters and the largest number of verifiers claim."""
        claims = [(group.count, group.resources) for group in self.drafters]
        claims.append((self.verifiers.most, self.verifiers.resources))
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


def _check_begin(count: int, scaling: ScalingConfig | None) -> None:
    if scaling is not None and not scaling.min <= count <= scaling.max:
        needed = f"autoscaling.min ({scaling.min}) to autoscaling.max ({scaling.max}), as so many start"
        raise ConfigError("count", needed, count)


def _check_gpu(device: Device, num_gpus: float) -> None:
    if device == "cuda" and num_gpus == 0:
        raise ConfigError("num_gpus", "a share above 0 where device is cuda", num_gpus)
