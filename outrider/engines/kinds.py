"""Kinds of engine: how an engine is described, what is built from the description, and what the kind supports.

Free of torch and of the engines' own libraries, so that processes that only describe engines load fast.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.contracts.drafting import DrafterEngine
from outrider.contracts.verifying import VerifierEngine
from outrider.costs.profiles import ProfiledOn
from outrider.drafting.recalibration import OnVerdict
from outrider.drafting.round_log import RoundLogPlace
from outrider.drafting.stopping import StopSetting
from outrider.engines.emulated_speed import EmulatedSpeed
from outrider.engines.limits import EngineLimits

if TYPE_CHECKING:
    from outrider.models.head_file import Head
    from outrider.models.identity import ModelIdentity
    from outrider.models.loading import ModelFacts
    from outrider.verification.decision_head import DecisionHead


@dataclass(frozen=True, slots=True)
class VerifierSpec:
    engine: str  # its kind, a name in ``registry.VERIFIERS``
    target: str  # name or path of the model
    dtype: str  # ``float32``, ``bfloat16``, ``float16``, or ``auto`` until an engine is built
    device: str  # a torch device; for vLLM ``cpu`` or ``cuda``
    threads: int  # of computation
    limits: EngineLimits  # KV memory and prefill
    max_context_tokens: int | None = None  # largest context to use; None: the model's
    max_pass_tokens: int = 512  # new tokens in one vLLM pass; larger batches are split
    tensor_parallel_size: int = 1  # GPUs that vLLM spreads the model over
    vllm_options: Mapping[str, object] = field(default_factory=dict)  # further ``EngineArgs`` of vLLM
    heads: Mapping[str, "Head"] = field(default_factory=dict)  # judges of mismatches, by draft model
    speed: EmulatedSpeed = field(default_factory=EmulatedSpeed)  # emulated

    def judges(self, target_hash: str) -> "dict[str, DecisionHead]":
        from outrider.models.pair_file import check_pair  # noqa: PLC0415 (loads numpy)

        for head in self.heads.values():
            check_pair(head.info, target_hash=target_hash)
        return {model: head.decisions for model, head in self.heads.items()}

    def machine(self, model: str, engine_version: str) -> ProfiledOn:
        """Return what this engine's pass times are measured on: this machine and ``model``, its short name."""
        from outrider.costs.machine import hardware_name  # noqa: PLC0415 (loads torch)

        quantization = self.vllm_options.get("quantization")
        return ProfiledOn(
            hardware=hardware_name(self.device, self.tensor_parallel_size),
            device=self.device.partition(":")[0],
            threads=self.threads,
            cores=os.cpu_count() or 0,
            engine=self.engine,
            engine_version=engine_version,
            model=model,
            dtype=self.dtype if quantization is None else f"{self.dtype}+{quantization}",
        )


@dataclass(frozen=True, slots=True)
class BuiltVerifier:
    engine: VerifierEngine
    facts: "ModelFacts"
    machine: ProfiledOn


@dataclass(frozen=True, slots=True)
class VerifierKind:
    """A kind of verifier engine.

    Attributes:
        build: loads the model and makes the engine; call it in the thread that will use the engine.
        check_installed: raises ``EngineUnavailableError`` if the engine's libraries are missing; called before any
            process is started.
        process_variables: environment variables that its process must be started with. The path is the prefix of the
            Python installation, ``sys.prefix``.
        cpu_dtype: what ``auto`` resolves to on this machine's CPU: the narrowest dtype that is batch-invariant for this
            model.
    """

    build: Callable[[VerifierSpec], BuiltVerifier]
    block_tokens: Mapping[str, int]  # positions per KV block, by device
    takes_options: bool = False  # whether it supports ``tensor_parallel_size`` above 1 and ``vllm_options``
    swaps: bool = False  # whether it supports a host cache for evicted KV
    check_installed: Callable[[], object] = lambda: None
    process_variables: Callable[[VerifierSpec, Path], Mapping[str, str]] = lambda _spec, _prefix: {}
    cpu_dtype: Callable[[str], str] = lambda _target: "float32"

    def settled(self, spec: VerifierSpec) -> VerifierSpec:
        """Return the spec with its dtype resolved, on the machine that will compute."""
        return replace(spec, dtype=self.settled_dtype(spec.dtype, spec.device, spec.target))

    def settled_dtype(self, dtype: str, device: str, target: str) -> str:
        """Resolve a dtype on a device of this machine, for a model by name or path."""
        if dtype != "auto":
            return dtype
        return cuda_dtype(device) if device.startswith("cuda") else self.cpu_dtype(target)


def cuda_dtype(device: str) -> str:
    """Return bfloat16 where the GPU computes in it; below compute capability 8.0 it is only emulated."""
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():  # loading a model there raises the error
        return "bfloat16"
    return "bfloat16" if torch.version.hip or torch.cuda.get_device_capability(device) >= (8, 0) else "float32"


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    engine: str  # its kind, a name in ``registry.DRAFTERS``
    model: str  # name or path of the draft model
    target: str  # name or path of the model it drafts for; only what both share is read of it
    dtype: str  # ``float32``, ``bfloat16``, ``float16``, ``int8`` (linear layers on CPUs) or ``auto``
    device: str  # a torch device
    threads: int  # of computation
    limits: EngineLimits  # KV memory and prefill
    stopping: StopSetting = field(default_factory=StopSetting)  # stop rule of its chains
    predictor: str | None = None  # of acceptance, for that rule: see ``models.predictors.load_predictors``
    log: RoundLogPlace | None = None  # where its rounds are logged, to train predictors
    speed: EmulatedSpeed = field(default_factory=EmulatedSpeed)  # emulated


@dataclass(frozen=True, slots=True)
class BuiltDrafter:
    engine: DrafterEngine
    facts: "ModelIdentity"


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """A kind of drafter engine.

    Attributes:
        build: loads the model and makes the engine, in the thread that will use it; without an ``OnVerdict`` verdicts
            are dropped.
        chains_only: whether with a model of this name it drafts chains of token ids alone, with no trees, distributions
            or hidden states.
        chains_first: whether it drafts such chains at the least cost, and anything else by another engine.
        check: raises ``ConfigError`` for a device and a dtype that it does not support.
    """

    build: Callable[[DrafterSpec, OnVerdict | None], BuiltDrafter]
    chains_only: Callable[[str], bool] = lambda _model: False
    chains_first: bool = False
    check: Callable[[str, str], None] = lambda _device, _dtype: None
