"""Measure at start whether copying a KV block to host memory and back takes less time than recomputing it."""

import time
from collections.abc import Callable

import torch

from outrider.engines.forward_model import SwappingModel
from outrider.engines.kv.host_cache import HostCopy
from outrider.engines.segments import Segment
from outrider.scheduling.residency import SwapPrices

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
