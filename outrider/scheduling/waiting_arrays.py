"""Hold the queue as arrays for the policies, in an order that does not depend on the caller's."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from outrider.scheduling.policy import BatchLimits, PendingVerification

Floats = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.intp]

_READ = (
    "arrived_at_s",
    "deadline_at_s",
    "expected_tokens",
    "memory_blocks",
    "cost.new_tokens",
    "cost.cached_tokens",
    "prefix_tokens",
    "first",
    "tokens_per_s",
)
_read = attrgetter(*_READ)
_by_arrival = attrgetter("arrived_at_s", "generation", "round")


@dataclass(frozen=True, slots=True)
class WaitingArrays:
    """All pending blocks by arrival, then generation, then round; arrays are ``[n]``.

    Attributes:
        blocks: the pending blocks themselves.
        new_tokens: positions to compute, ``prefix_tokens`` of them in chunks; ``cached_tokens`` are only read.
        chunk_tokens: prefix positions of one pass, over all blocks.
        works: ``[n, 3]`` new tokens, interactions and cached tokens of a pass with that block alone.
    """

    blocks: list[PendingVerification]
    arrived_at_s: Floats
    deadline_at_s: Floats
    expected_tokens: Floats
    memory_blocks: Floats
    new_tokens: Floats
    cached_tokens: Floats
    prefix_tokens: Floats
    first: Floats  # 1 where the block brings its response's first token, else 0
    tokens_per_s: Floats
    chunk_tokens: int
    works: Floats

    def works_behind(self, run: Indexes, used_tokens: Floats) -> Floats:
        """Return ``[run, 3]`` works of some blocks, each behind others that use ``used_tokens`` of the pass's chunk."""
        prefix = self.prefix_tokens[run]
        if not prefix.any():  # the common case
            return self.works[run]
        return _works(self.new_tokens[run], self.cached_tokens[run], prefix, self.chunk_tokens - used_tokens)


def waiting_arrays(pending: Sequence[PendingVerification], limits: BatchLimits) -> WaitingArrays:
    """Read each block once, in the caller's order, which is that of memory; then sort."""
    read = np.fromiter(chain.from_iterable(map(_read, pending)), np.float64, len(pending) * len(_READ))
    rows = read.reshape(-1, len(_READ))
    order = np.argsort(rows[:, 0], kind="stable")
    if (np.diff(rows[order, 0]) == 0.0).any():  # equal arrivals are rare: sort by generation and round only then
        order = np.array(sorted(range(len(pending)), key=lambda index: _by_arrival(pending[index])))
    arrived, deadline, expected, memory, new, cached, prefix, first, speed = rows[order].T
    chunk, blocks = limits.prefill_chunk_tokens, [pending[index] for index in order.tolist()]
    new = np.where(prefix > 0.0, new, np.minimum(new, chunk))
    works = _works(new, cached, prefix, np.full(len(new), float(chunk)))
    return WaitingArrays(blocks, arrived, deadline, expected, memory, new, cached, prefix, first, speed, chunk, works)


def _works(new: Floats, cached: Floats, prefix: Floats, chunk_left: Floats) -> Floats:
    """Return ``[n, 3]`` work that one pass computes of each (``contracts.chunks.chunk_of``); 0 without a chunk."""
    counted = np.clip(chunk_left, 0.0, prefix)
    new = np.where(counted == prefix, new, counted)
    return np.stack((new, (new + cached) * new, np.where(new > 0.0, cached, 0.0)), axis=1)
