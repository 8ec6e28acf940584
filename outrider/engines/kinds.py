"""What a kind of engine is: how one is described, what is built of that, and what the kind can do.

Free of torch and of every engine's own libraries, so that whoever only describes engines loads quickly.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.contracts.drafting import DrafterEngine
from outrider.contracts.requests import GenerationId
from outrider.contracts.verifying import VerifierEngine
from outrider.costs.profiles import ProfiledOn
from outrider.drafting.recalibration import ChainVerdict
from outrider.drafting.round_log import RoundLogPlace
from outrider.drafting.stopping import StopSetting
from outrider.engines.emulated_speed import EmulatedSpeed
from outrider.engines.limits import EngineLimits

if TYPE_CHECKING:
    from outrider.models.head_file import Head
    from outrider.models.loading import ModelFacts
    from outrider.verification.decision_head import DecisionHead


@dataclass(frozen=True, slots=True)
class VerifierSpec:
    engine: str  # its kind, by its name in ``registry.VERIFIERS``
    target: str  # name or path of the model
    dtype: str  # ``float32``, ``bfloat16``, ``float16``, or ``auto`` until an engine is built
    device: str  # a torch device; vLLM takes ``cpu`` or ``cuda``
    threads: int  # of computation
    limits: EngineLimits  # KV memory and prefill
    max_context_tokens: int | None = None  # context to use at most; None takes all the model was made for
    max_pass_tokens: int = 512  # new tokens that vLLM computes at once; larger batches take it several passes
    tensor_parallel_size: int = 1  # GPUs that vLLM spreads the model over
    vllm_options: Mapping[str, object] = field(default_factory=dict)  # more of vLLM's ``EngineArgs``
    heads: Mapping[str, "Head"] = field(default_factory=dict)  # who judges mismatches, by draft model
    speed: EmulatedSpeed = field(default_factory=EmulatedSpeed)  # emulated

    def judges(self, target_hash: str) -> "dict[str, DecisionHead]":
        """Its heads, for this target; one of another is a ``PairMismatchError``."""
        from outrider.models.pair_file import check_pair  # noqa: PLC0415 (loads numpy)

        for head in self.heads.values():
            check_pair(head.info, target_hash=target_hash)
        return {model: head.decisions for model, head in self.heads.items()}

    def machine(self, model: str, engine_version: str) -> ProfiledOn:
        """Where such an engine's times are measured, on this machine; ``model`` is its short name."""
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
    """An engine, its model's facts, and where its times are measured."""

    engine: VerifierEngine
    facts: "ModelFacts"
    machine: ProfiledOn


@dataclass(frozen=True, slots=True)
class VerifierKind:
    """A kind of verifier engine.

    Attributes:
        build: loads the model and makes the engine, in the thread that will use it.
        check_installed: finds out, before any process is started, that the engine's libraries are not here
            (``EngineUnavailableError``).
        process_variables: environment variables that its process must be started with. The path is the prefix of the
            Python installation, ``sys.prefix``.
        cpu_dtype: what ``auto`` stands for on this machine's processor: the narrowest in which this model's answers are
            the same in any company.
    """

    build: Callable[[VerifierSpec], BuiltVerifier]
    block_tokens: Mapping[str, int]  # positions per KV block where none are configured, by device
    takes_multiples: bool = False  # of these alone
    takes_options: bool = False  # ``tensor_parallel_size`` above 1, and ``vllm_options``
    swaps: bool = False  # KV that is given up to host memory
    check_installed: Callable[[], object] = lambda: None
    process_variables: Callable[[VerifierSpec, Path], Mapping[str, str]] = lambda _spec, _prefix: {}
    cpu_dtype: Callable[[str], str] = lambda _target: "float32"

    def settled(self, spec: VerifierSpec) -> VerifierSpec:
        """The same with a type, on the machine that is to compute in it."""
        return replace(spec, dtype=self.settled_dtype(spec.dtype, spec.device, spec.target))

    def settled_dtype(self, dtype: str, device: str, target: str) -> str:
        """What a type stands for on a device of this machine, for a model by name or path."""
        if dtype != "auto":
            return dtype
        return cuda_dtype(device) if device.startswith("cuda") else self.cpu_dtype(target)


def cuda_dtype(device: str) -> str:
    """bfloat16 where the GPU computes in it; those before compute capability 8.0 only emulate it."""
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():  # who loads a model there says so
        return "bfloat16"
    return "bfloat16" if torch.version.hip or torch.cuda.get_device_capability(device) >= (8, 0) else "float32"


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    engine: str  # its kind, by its name in ``registry.DRAFTERS``
    model: str  # name or path of the draft model
    target: str  # name or path of the model it drafts for; of it only what they share is read
    dtype: str  # ``float32``, ``bfloat16``, ``float16``, ``int8`` (linear layers on CPUs) or ``auto``
    device: str  # a torch device
    threads: int  # of computation
    limits: EngineLimits  # KV memory and prefill
    stopping: StopSetting = field(default_factory=StopSetting)  # how far it drafts chains
    predictor: str | None = None  # of acceptance, for that: see ``models.predictors.load_predictors``
    log: RoundLogPlace | None = None  # of its rounds, to train predictors by
    speed: EmulatedSpeed = field(default_factory=EmulatedSpeed)  # emulated


@dataclass(frozen=True, slots=True)
class BuiltDrafter:
    """An engine and its model's facts."""

    engine: DrafterEngine
    facts: "ModelFacts"


# Told what became of a chain, with its features, in the engine's thread: it returns at once and never raises.
OnVerdict = Callable[[GenerationId, ChainVerdict], None]

# Loads the model and makes the engine, in the thread that will use it; None: nobody is told of verdicts.
DrafterKind = Callable[[DrafterSpec, OnVerdict | None], BuiltDrafter]
