"""The configuration's pieces: one frozen dataclass per component, which is all that component gets to see.

Fields carry their units in the name and their range in the type; what a piece cannot express in a range it checks in
``__post_init__``. ``outrider.config`` reads them from YAML and turns violations into ``ConfigError``. Values are
strict: ``"8"`` is not an integer. What every field means to an operator stands in ``default.yaml``.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from outrider.errors import ConfigError

Text = Annotated[str, Field(strict=True, min_length=1)]
Name = Annotated[
    str,
    Field(
        strict=True, pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="a short name of a-z, 0-9, and inside - or _"
    ),
]
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Threads = Annotated[int, Field(strict=True, ge=1, le=1024)]
Number = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
PositiveNumber = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Mebibytes = Annotated[int, Field(strict=True, ge=16, le=1_048_576)]
Window = Annotated[int, Field(strict=True, ge=0, le=64)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400)]
Share = Annotated[float, Field(strict=True, ge=0, le=1_024)]  # of CPUs or GPUs; Ray counts in fractions
Quantity = Annotated[float, Field(strict=True, gt=0, le=1_000_000)]

DType = Literal["float32", "bfloat16", "float16"]
Device = Literal["cpu", "cuda"]
Resources = Mapping[Text, Quantity]  # Ray's custom resources

_FORBID = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, config=_FORBID)
class ModelConfig:
    """The target model: what is served."""

    target: Text = "smollm2-135m-instruct"
    served_name: Text | None = None
    dtype: DType = "float32"
    max_context_tokens: PositiveNumber | None = None

    @property
    def public_name(self) -> str:
        """The name clients send as ``model``: ``served_name``, else the last part of the target's."""
        return self.served_name or PurePath(self.target).name or self.target


@dataclass(frozen=True, slots=True, config=_FORBID)
class DrafterGroupConfig:
    """Drafters of one kind of device."""

    name: Name
    model: Text = "smollm2-135m-drafter"
    dtype: DType = "bfloat16"
    device: Device = "cpu"
    count: Number = 1
    resources: Resources = field(default_factory=lambda: {"jetson": 1.0})
    num_cpus: Share = 0.0
    num_gpus: Share = 0.0
    threads: Threads = 1
    max_generations: PositiveNumber = 32
    kv_budget_mib: Mebibytes = 256

    def __post_init__(self) -> None:
        """Refuse a CUDA device without a GPU share: Ray would hide every GPU from the drafter."""
        _needs_gpu(self.device, self.num_gpus)


@dataclass(frozen=True, slots=True, config=_FORBID)
class VerifierConfig:
    """The verifiers, all alike: one target model and its KV each."""

    count: PositiveNumber = 1
    device: Device = "cpu"
    num_gpus: Share = 0.0
    num_cpus: Share = 1.0
    resources: Resources = field(default_factory=dict)
    threads: Threads = 1
    kv_budget_mib: Mebibytes = 512
    kv_block_tokens: PositiveNumber = 16
    prefill_chunk_tokens: PositiveNumber = 64
    max_batch_tokens: PositiveNumber = 512
    max_batch_blocks: PositiveNumber = 32

    def __post_init__(self) -> None:
        """Refuse a device without a GPU share, a verifier that claims nothing, and a chunk that no batch can hold."""
        _needs_gpu(self.device, self.num_gpus)
        if not (self.num_cpus or self.num_gpus or self.resources):
            raise ConfigError("num_cpus", "a share above 0 where neither num_gpus nor resources are claimed", 0.0)
        if self.prefill_chunk_tokens > self.max_batch_tokens:
            needed = f"at most max_batch_tokens ({self.max_batch_tokens})"
            raise ConfigError("prefill_chunk_tokens", needed, self.prefill_chunk_tokens)


@dataclass(frozen=True, slots=True, config=_FORBID)
class SpeculationConfig:
    """How far drafters run ahead, in draft tokens per round."""

    k_max: Annotated[int, Field(strict=True, ge=1, le=64)] = 16
    window: Window = 2

    def __post_init__(self) -> None:
        """Refuse a window past the engines' limit."""
        if self.window > self.k_max:
            raise ConfigError("window", f"at most k_max ({self.k_max})", self.window)


@dataclass(frozen=True, slots=True, config=_FORBID)
class SchedulingConfig:
    """Which pending blocks form the next verification batch."""

    policy: Literal["fcfs"] = "fcfs"


@dataclass(frozen=True, slots=True, config=_FORBID)
class LimitsConfig:
    """What a request may ask for, and how long each party may take before it counts as failed."""

    max_concurrent_generations: PositiveNumber = 32
    max_queued_generations: Number = 128
    max_output_tokens: PositiveNumber = 4096
    max_body_mib: Annotated[int, Field(strict=True, ge=1, le=1024)] = 4
    drafter_deadline_s: Seconds = 5.0
    drafter_open_deadline_s: Seconds = 30.0
    verifier_deadline_s: Seconds = 30.0
    verifier_start_deadline_s: Seconds = 300.0
    first_chunk_deadline_s: Seconds = 400.0
    next_chunk_deadline_s: Seconds = 400.0

    def __post_init__(self) -> None:
        """Refuse to give up a response while a lost verifier may still come back for it."""
        recovery_s = self.verifier_deadline_s + self.verifier_start_deadline_s
        for name in ("first_chunk_deadline_s", "next_chunk_deadline_s"):
            if getattr(self, name) < recovery_s:
                needed = f"at least verifier_deadline_s + verifier_start_deadline_s ({recovery_s:g})"
                raise ConfigError(name, needed, getattr(self, name))


@dataclass(frozen=True, slots=True, config=_FORBID)
class HttpConfig:
    """Where the API listens."""

    host: Text = "127.0.0.1"
    port: Port = 8000


@dataclass(frozen=True, slots=True, config=_FORBID)
class ClusterConfig:
    """The Ray cluster that ``outrider serve`` starts on this machine."""

    namespace: Name = "outrider"
    num_cpus: PositiveNumber = 8
    object_store_mib: Annotated[int, Field(strict=True, ge=80, le=1_048_576)] = 100


@dataclass(frozen=True, slots=True, config=_FORBID)
class Config:
    """Everything, as one file says it."""

    model: ModelConfig = field(default_factory=ModelConfig)
    drafters: tuple[DrafterGroupConfig, ...] = field(default_factory=lambda: (DrafterGroupConfig(name="embedded"),))
    verifiers: VerifierConfig = field(default_factory=VerifierConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    scheduling: SchedulingConfig = field(default_factory=SchedulingConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    def __post_init__(self) -> None:
        """Refuse two groups of one name: actors and metrics are named after them."""
        names = [group.name for group in self.drafters]
        if len(set(names)) < len(names):
            raise ConfigError("drafters", "a different name for each group", names)

    @property
    def drafter_count(self) -> int:
        """Drafters of all groups together."""
        return sum(group.count for group in self.drafters)

    @property
    def custom_resources(self) -> dict[str, float]:
        """Ray's custom resources that all drafters and verifiers together claim."""
        claims = [(group.count, group.resources) for group in self.drafters]
        claims.append((self.verifiers.count, self.verifiers.resources))
        total: dict[str, float] = {}
        for count, resources in claims:
            for name, quantity in resources.items():
                total[name] = total.get(name, 0.0) + count * quantity
        return total


def _needs_gpu(device: Device, num_gpus: float) -> None:
    if device == "cuda" and num_gpus == 0:
        raise ConfigError("num_gpus", "a share above 0 where device is cuda", num_gpus)
