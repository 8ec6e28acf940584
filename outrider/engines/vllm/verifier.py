"""Verifier engine on vLLM."""

from outrider.engines.limits import kept_rows_bytes
from outrider.engines.verifier.engine import PagedVerifier
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings
from outrider.verification.semantic import MismatchJudge


def vllm_verifier(
    settings: VllmSettings, prefill_chunk_tokens: int, judge: MismatchJudge | None = None
) -> PagedVerifier:
    """``PagedVerifier`` over ``VllmForward``; see there for errors.

    Args:
        settings: of vLLM.
        prefill_chunk_tokens: prefix positions computed per pass, over all cold blocks.
        judge: of mismatches; without one there is no semantic rule.
    """
    model = VllmForward(settings)
    return PagedVerifier(
        model,
        vocab_size=settings.vocab_size,
        max_context_tokens=min(settings.max_context_tokens, model.max_positions),
        prefill_chunk_tokens=prefill_chunk_tokens,
        kept_rows_bytes=kept_rows_bytes(settings.kv_budget_bytes),
        judge=judge,
    )
