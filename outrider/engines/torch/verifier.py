"""Verifier engine on torch: any Hugging Face causal LM, one forward pass per batch over a paged KV pool."""

import logging
import time
from collections.abc import Callable, Mapping

import torch

from outrider.engines.forward_model import SwappingModel
from outrider.engines.kv.host_cache import HostCopy
from outrider.engines.limits import EngineLimits, MemoryBesideKv
from outrider.engines.segments import Segment
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.served import target_model
from outrider.engines.verifier.engine import PagedVerifier
from outrider.events import event
from outrider.grammar.compiling import Grammars
from outrider.models.loading import LoadedModel
from outrider.scheduling.residency import SwapPrices
from outrider.verification.semantic import MismatchJudge

log = logging.getLogger(__name__)

_BLOCKS = 8  # copied in one trial
_TRIALS = 3  # the fastest one counts


def swap_prices(
    model: SwappingModel, slots: int, chunk_tokens: int, clock: Callable[[], float] = time.perf_counter
) -> SwapPrices:
    """Measure copies and recomputation. Call it while the KV pool is empty: it overwrites blocks.

    ``model`` has ``slots``, at least 1, of host memory; ``chunk_tokens`` are computed together.
    """
    blocks = min(_BLOCKS, slots, model.total_blocks)
    rows = min(chunk_tokens, model.total_blocks * model.block_tokens)

    def copied_s(*, out: bool) -> float:
        copies = [HostCopy(block, block, out) for block in range(blocks)]
        return _least_s(lambda: model.swap(copies), model, clock) / blocks

    def computed_s(tokens: int) -> float:
        held = range(-(-tokens // model.block_tokens))
        segment = Segment([0] * tokens, 0, held, 1)
        return _least_s(lambda: model.forward([segment]), model, clock)

    out_s, in_s = copied_s(out=True), copied_s(out=False)
    row_s = (computed_s(rows) - computed_s(1)) / max(1, rows - 1)  # of one more row in a chunk
    return SwapPrices(out_s, in_s, max(0.0, row_s) * model.block_tokens)


def _least_s(once: Callable[[], object], model: SwappingModel, clock: Callable[[], float]) -> float:
    """Return the shortest of the trials in seconds, the GPU's work included."""
    on_gpu, took_s = model.no_logits.is_cuda, list[float]()
    for _ in range(_TRIALS):
        began_at_s = clock()
        once()
        if on_gpu:
            torch.cuda.synchronize(model.no_logits.device)
        took_s.append(clock() - began_at_s)
    return min(took_s)


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
