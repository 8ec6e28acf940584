"""Verifier engine on torch: any Hugging Face causal LM, one forward pass per batch over a paged KV pool."""

from collections.abc import Mapping

from outrider.engines.limits import EngineLimits, kept_rows_bytes
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.served import target_model
from outrider.engines.verifier.engine import PagedVerifier
from outrider.models.loading import LoadedModel
from outrider.verification.semantic import MismatchJudge


class TorchVerifier(PagedVerifier):
    """``PagedVerifier`` over ``FusedModel`` or ``PagedModel``."""

    def __init__(
        self, target: LoadedModel, limits: EngineLimits, judges: Mapping[str, MismatchJudge] | None = None
    ) -> None:
        """Take over the target's model and allocate its KV pool; see ``PagedVerifier`` for ``judges``."""
        token_bytes = kv_bytes_per_token(target.model)
        total_blocks = limits.total_blocks(token_bytes)
        super().__init__(
            target_model(target.model, total_blocks, limits.block_tokens, limits.parts),
            vocab_size=target.vocab_size,
            max_context_tokens=target.max_context_tokens,
            prefill_chunk_tokens=limits.prefill_chunk_tokens,
            kept_rows_bytes=kept_rows_bytes(total_blocks * limits.block_tokens * token_bytes),
            judges=judges,
        )
