"""Sections of the configuration on verifiers and ingresses: engine, number and scaling of these."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from outrider.config.device_defaults import BatchSize, batch_size, kv_memory_mib
from outrider.config.values import (
    FORBID,
    Device,
    Mebibytes,
    Milliseconds,
    PositiveNumber,
    Resources,
    Share,
    Text,
    Threads,
    check_gpu,
)
from outrider.contracts.errors import ConfigError
from outrider.documents.names import NameIn
from outrider.engines.registry import VERIFIERS


@dataclass(frozen=True, slots=True, config=FORBID)
class ScalingConfig:
    """Number of replicas between ``min`` and ``max``; see ``outrider.scaling.policy.ScalingRules``."""

    min: PositiveNumber = 1
    max: PositiveNumber = 1

    def __post_init__(self) -> None:
        if self.max < self.min:
            raise ConfigError("max", f"at least min ({self.min})", self.max)


@dataclass(frozen=True, slots=True, config=FORBID)
class VerifierScalingConfig(ScalingConfig):
    """Scaling of verifiers, by promised load."""

    target_load: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.8
    down_after_s: Annotated[float, Field(strict=True, ge=0, le=86_400)] = 300.0


@dataclass(frozen=True, slots=True, config=FORBID)
class IngressScalingConfig(ScalingConfig):
    """Scaling of ingresses, by the responses that each streams."""

    streams: PositiveNumber = 400


@dataclass(frozen=True, slots=True, config=FORBID)
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
    kv_budget_mib: Mebibytes | None = None
    swap_mib: Annotated[int, Field(strict=True, ge=0, le=2**24)] = 0
    prefill_chunk_tokens: PositiveNumber | None = None
    tensor_parallel_size: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    vllm_options: Mapping[Text, Any] = field(default_factory=dict)  # vLLM's EngineArgs, which validates them
    emulated_pass_ms: Milliseconds = 0.0
    emulated_row_ms: Milliseconds = 0.0

    def __post_init__(self) -> None:
        check_gpu(self.device, self.num_gpus)
        _check_begin(self.count, self.autoscaling)
        self._check_engine()
        if not (self.num_cpus or self.num_gpus or self.resources):
            raise ConfigError("num_cpus", "a share above 0 where neither num_gpus nor resources are claimed", 0.0)

    @property
    def most(self) -> int:
        return self.count if self.autoscaling is None else self.autoscaling.max

    @property
    def batch(self) -> BatchSize:
        """Limits of a forward pass: the device's, and ``prefill_chunk_tokens``."""
        return batch_size(self.device, self.prefill_chunk_tokens)

    @property
    def kv_memory_mib(self) -> int | None:
        """``kv_budget_mib``, else the device's default; None: the free memory of a GPU."""
        return kv_memory_mib(self.device) if self.kv_budget_mib is None else self.kv_budget_mib

    @property
    def block_tokens(self) -> int:
        """Positions per KV block, of the engine on this device."""
        return VERIFIERS[self.engine].block_tokens[self.device]

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


@dataclass(frozen=True, slots=True, config=FORBID)
class IngressConfig:
    """Replicas that answer HTTP and convert between text and tokens."""

    count: PositiveNumber = 1
    autoscaling: IngressScalingConfig | None = None

    def __post_init__(self) -> None:
        _check_begin(self.count, self.autoscaling)

    @property
    def most(self) -> int:
        return self.count if self.autoscaling is None else self.autoscaling.max


def _check_begin(count: int, scaling: ScalingConfig | None) -> None:
    if scaling is not None and not scaling.min <= count <= scaling.max:
        needed = f"autoscaling.min ({scaling.min}) to autoscaling.max ({scaling.max}), as so many start"
        raise ConfigError("count", needed, count)
