"""Verifier engine on torch: any Hugging Face causal LM, one forward pass per batch over a paged KV pool."""

import logging
from collections.abc import Mapping

from outrider.engines.forward_model import SwappingModel
from outrider.engines.limits import EngineLimits, MemoryBesideKv
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.served import target_model
from outrider.engines.torch.swapping import swap_prices
from outrider.engines.verifier.engine import PagedVerifier
from outrider.events import event
from outrider.grammar.compiling import Grammars
from outrider.models.loading import LoadedModel
from outrider.verification.semantic import MismatchJudge

log = logging.getLogger(__name__)


class TorchVerifier(PagedVerifier):
    """``PagedVerifier`` over ``FusedModel`` or ``PagedModel``."""

    def __init__(
        self,
        target: LoadedModel,
        limits: EngineLimits,
        judges: Mapping[str, MismatchJudge] | None = None,
        grammars: Grammars | None = None,
    ) -> None:
        """Take over the target's model and allocate its KV pool; see ``PagedVerifier`` for the others."""
        token_bytes = kv_bytes_per_token(target.model)
        total_blocks = limits.total_blocks(token_bytes)
        model = target_model(target.model, total_blocks, limits.block_tokens, limits.parts)
        super().__init__(
            model,
            vocab_size=target.vocab_size,
            max_context_tokens=target.max_context_tokens,
            prefill_chunk_tokens=limits.prefill_chunk_tokens,
            memory=MemoryBesideKv.of(
                total_blocks * limits.block_tokens * token_bytes,
                _given_host_blocks(model, limits.host_blocks(token_bytes), limits.prefill_chunk_tokens),
            ),
            judges=judges,
            grammars=grammars,
        )


def _given_host_blocks(model: SwappingModel, blocks: int, chunk_tokens: int) -> int:
    """Give a model host memory for KV if copying pays on this machine; return the number of blocks given."""
    if not blocks:
        return 0
    model.give_host_memory(blocks)
    prices = swap_prices(model, blocks, chunk_tokens)
    pays = prices.copying_pays
    event(
        log, "kv_swap", blocks=blocks, pays=pays, out_s=prices.out_s, in_s=prices.in_s, recompute_s=prices.recompute_s
    )
    if pays:
        return blocks
    model.give_host_memory(0)
    return 0
