"""Engines on torch. Free of torch until one is built."""

from outrider.engines.kinds import BuiltDrafter, BuiltVerifier, DrafterSpec, VerifierKind, VerifierSpec


def torch_verifier(spec: VerifierSpec) -> BuiltVerifier:
    """``TorchVerifier`` over any Hugging Face causal LM."""
    import torch  # noqa: PLC0415

    from outrider.engines.torch.verifier import TorchVerifier  # noqa: PLC0415
    from outrider.models.loading import load_target  # noqa: PLC0415

    loaded = load_target(spec.target, dtype=spec.dtype, device=spec.device, max_context_tokens=spec.max_context_tokens)
    return BuiltVerifier(TorchVerifier(loaded, spec.limits), loaded, spec.machine(loaded.name, torch.__version__))


def torch_drafter(spec: DrafterSpec) -> BuiltDrafter:
    """``TorchDrafter`` over a distilled drafter or any Hugging Face causal LM."""
    from outrider.engines.drafter.engine import TorchDrafter  # noqa: PLC0415
    from outrider.models.loading import load_drafter  # noqa: PLC0415

    loaded = load_drafter(spec.model, spec.target, dtype=spec.dtype, device=spec.device)
    return BuiltDrafter(TorchDrafter(loaded, spec.limits), loaded)


def cpu_dtype() -> str:
    """bfloat16 where that is fast; it is exact all the same (``outrider.engines.torch.model``)."""
    import torch  # noqa: PLC0415

    narrow = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001 (no public name)
    return "bfloat16" if narrow else "float32"


TORCH_VERIFIER = VerifierKind(torch_verifier, block_tokens={"cpu": 16, "cuda": 16}, cpu_dtype=cpu_dtype)
