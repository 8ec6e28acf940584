"""Build the verifier engine that the configuration describes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.engines.emulated_speed import EmulatedSpeed, PassTimer, slowed_verifier
from outrider.engines.kinds import BuiltVerifier, VerifierSpec
from outrider.engines.limits import EngineLimits
from outrider.engines.registry import VERIFIERS
from outrider.models.head_file import Head

if TYPE_CHECKING:  # a verifier's process receives the spec, not the configuration
    from outrider.config.replicas import VerifierConfig
    from outrider.config.schema import ModelConfig


PREFILL_THREADS = 2  # that share a pass of many rows, of the torch engine on a CPU; no more than there are cores


def verifier_spec(
    model: "ModelConfig", verifiers: "VerifierConfig", heads: Mapping[str, Head] | None = None
) -> VerifierSpec:
    """Return the spec of a verifier; ``heads`` judge mismatches, by draft model."""
    budget_mib = verifiers.kv_memory_mib
    return VerifierSpec(
        engine=verifiers.engine,
        target=model.target,
        dtype=model.dtype,
        device=verifiers.device,
        threads=verifiers.threads,
        limits=EngineLimits(
            kv_budget_bytes=None if budget_mib is None else budget_mib * 2**20,
            block_tokens=verifiers.block_tokens,
            prefill_chunk_tokens=verifiers.batch.prefill_chunk_tokens,
            parts=PREFILL_THREADS,
            gpu_share=min(1.0, verifiers.num_gpus) if verifiers.device == "cuda" else 1.0,
            swap_bytes=verifiers.swap_mib * 2**20,
        ),
        max_context_tokens=model.max_context_tokens,
        max_pass_tokens=verifiers.batch.max_tokens,
        tensor_parallel_size=verifiers.tensor_parallel_size,
        vllm_options=verifiers.vllm_options,
        heads=heads or {},
        speed=EmulatedSpeed(verifiers.emulated_pass_ms / 1e3, verifiers.emulated_row_ms / 1e3),
    )


def process_variables(spec: VerifierSpec, prefix: Path) -> dict[str, str]:
    """Return the environment variables to start the engine's process with; ``prefix`` is ``sys.prefix`` there."""
    return {"OMP_NUM_THREADS": str(spec.threads), **VERIFIERS[spec.engine].process_variables(spec, prefix)}


def build_verifier(spec: VerifierSpec) -> BuiltVerifier:
    """Load the model and build its engine, in the thread that will use it, on the machine it will run on.

    Raises:
        ParameterError: a value that engine or model does not support.
        ModelUnavailableError: the model cannot be found or loaded.
        EngineUnavailableError: the engine's libraries are not installed, or do not start.
        UnsupportedModelError: the engine does not implement an operation of the model.
    """
    kind = VERIFIERS[spec.engine]
    built = kind.build(kind.settled(spec))
    return replace(built, engine=slowed_verifier(built.engine, PassTimer(spec.speed))) if spec.speed else built
