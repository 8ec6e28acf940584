"""Torch engines as kinds of engine. Imports torch only when an engine is built."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from outrider.contracts.errors import ParameterError
from outrider.drafting.recalibration import OnVerdict
from outrider.drafting.stopping import StopSetting
from outrider.engines.kinds import (
    BuiltDrafter,
    BuiltVerifier,
    DrafterKind,
    DrafterSpec,
    VerifierKind,
    VerifierSpec,
    cuda_dtype,
)
from outrider.engines.limits import EngineLimits, gpu_kv_bytes
from outrider.engines.load_phases import load_phase
from outrider.events import event

if TYPE_CHECKING:
    from outrider.models.loading import LoadedModel

INT8 = "int8"
_LOG = logging.getLogger(__name__)


def torch_verifier(spec: VerifierSpec) -> BuiltVerifier:
    """Build a ``TorchVerifier`` over any Hugging Face causal LM."""
    import torch  # noqa: PLC0415

    from outrider.engines.torch.verifier import TorchVerifier  # noqa: PLC0415
    from outrider.models.grammars import grammars_of  # noqa: PLC0415
    from outrider.models.loading import load_target  # noqa: PLC0415

    context = spec.max_context_tokens
    with load_phase("weights"):
        loaded = load_target(spec.target, dtype=spec.dtype, device=spec.device, max_context_tokens=context)
    with load_phase("kv"):  # and kernels, warmed up
        engine = TorchVerifier(loaded, _settled_limits(spec), spec.judges(loaded.model_hash), grammars_of(loaded))
    return BuiltVerifier(engine, loaded, spec.machine(loaded.name, torch.__version__))


def _settled_limits(spec: VerifierSpec) -> EngineLimits:
    """Return the limits with a KV budget: as configured, or on a GPU the memory left after loading the model."""
    import torch  # noqa: PLC0415

    limits = spec.limits
    if limits.kv_budget_bytes is not None or not spec.device.startswith("cuda"):
        return limits
    memory, own = torch.cuda.mem_get_info(spec.device), torch.cuda.memory_reserved(spec.device)
    return replace(limits, kv_budget_bytes=gpu_kv_bytes(*memory, own, limits.gpu_share))


def torch_drafter(spec: DrafterSpec, on_verdict: OnVerdict | None = None) -> BuiltDrafter:
    """Build a ``TorchDrafter`` over a distilled drafter or any Hugging Face causal LM."""
    from outrider.engines.drafter.engine import TorchDrafter  # noqa: PLC0415

    loaded = loaded_drafter(spec)
    stopping = stopping_of(spec, loaded.model_hash)
    if stopping.predictors:
        event(_LOG, "predictors_loaded", predictor=spec.predictor, rules=sorted(stopping.predictors))
    return BuiltDrafter(TorchDrafter(loaded, spec.limits, stopping, on_verdict), loaded)


def stopping_of(spec: DrafterSpec, drafter_hash: str) -> StopSetting:
    """Return the stop rule with the pair's predictors, if the rule uses any; raises as ``load_predictors``."""
    from outrider.models.folders import resolve_folder  # noqa: PLC0415
    from outrider.models.predictors import load_predictors  # noqa: PLC0415
    from outrider.models.target_folder import model_hash  # noqa: PLC0415

    if spec.predictor is None or not spec.stopping.stops:
        return spec.stopping
    target_hash = model_hash(resolve_folder(spec.target))
    predictors = load_predictors(spec.predictor, target_hash=target_hash, drafter_hash=drafter_hash)
    return replace(spec.stopping, predictors=predictors)


def loaded_drafter(spec: DrafterSpec) -> "LoadedModel":
    """Load the draft model in the dtype it computes in; raises as ``drafter_dtype`` and ``load_drafter``."""
    from outrider.engines.torch.int8 import quantise_linears  # noqa: PLC0415
    from outrider.models.loading import load_drafter  # noqa: PLC0415

    dtype = drafter_dtype(spec)
    loaded = load_drafter(spec.model, spec.target, dtype="float32" if dtype == INT8 else dtype, device=spec.device)
    if dtype == INT8:
        quantise_linears(loaded.model)
    return loaded


def drafter_dtype(spec: DrafterSpec) -> str:
    """Resolve ``auto`` to this machine's fastest; ``int8`` where a device lacks it is a ``ParameterError``."""
    from outrider.engines.torch.int8 import has_int8  # noqa: PLC0415

    on_cpu = spec.device == "cpu"
    if spec.dtype == INT8 and not (on_cpu and has_int8()):
        needed = "float32, bfloat16, float16 or auto: int8 is for x86 processors with VNNI instructions"
        raise ParameterError("dtype", needed, f"int8 on {spec.device}")
    if spec.dtype != "auto":
        return spec.dtype
    if not on_cpu:
        return cuda_dtype(spec.device)
    return INT8 if has_int8() else cpu_dtype()


def target_dtype(target: str) -> str:
    """Return bfloat16 if it is fast here and results are batch-invariant (``unpackable_weights``), else float32."""
    from outrider.engines.torch.linears import unpackable_weights  # noqa: PLC0415
    from outrider.models.loading import empty_target  # noqa: PLC0415

    narrow = cpu_dtype()
    return narrow if narrow == "float32" or not unpackable_weights(empty_target(target)) else "float32"


def cpu_dtype() -> str:
    """Return the dtype in which this CPU computes fastest."""
    import torch  # noqa: PLC0415

    narrow = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001 (no public name)
    return "bfloat16" if narrow else "float32"


TORCH_DRAFTER = DrafterKind(torch_drafter)
TORCH_VERIFIER = VerifierKind(torch_verifier, block_tokens={"cpu": 16, "cuda": 16}, swaps=True, cpu_dtype=target_dtype)
