"""The queue as arrays, in an order that does not depend on the caller's: what the policies compute with."""

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
    """Everything pending, by arrival, then generation, then round; ``[n]`` each.

    Attributes:
        blocks: the requests themselves.
        new_tokens: positions to compute, those of ``prefix_tokens`` in chunks; ``cached_tokens`` are only read.
        chunk_tokens: of prefixes in one pass, over all blocks.
        works: ``[n, 3]`` new tokens, interactions and cached tokens of a pass with that one alone.
    """

    blocks: list[PendingVerification]
    arrived_at_s: Floats
    deadline_at_s: Floats
    expected_tokens: Floats
    memory_blocks: Floats
    new_tokens: Floats
    cached_tokens: Floats
    prefix_tokens: Floats
    first: Floats  # 1 where a response's first token is brought, else 0
    tokens_per_s: Floats
    chunk_tokens: int
    works: Floats

    def works_behind(self, run: Indexes, used_tokens: Floats) -> Floats:
        """``[run, 3]``: the same of some, each behind others that use so much of the pass's chunk."""
        prefix = self.prefix_tokens[run]
        if not prefix.any():  # most blocks
            return self.works[run]
        return _works(self.new_tokens[run], self.cached_tokens[run], prefix, self.chunk_tokens - used_tokens)


def waiting_arrays(pending: Sequence[PendingVerification], limits: BatchLimits) -> WaitingArrays:
    """Read each request once, in the order in which they lie in memory, and sort."""
    read = np.fromiter(chain.from_iterable(map(_read, pending)), np.float64, len(pending) * len(_READ))
    rows = read.reshape(-1, len(_READ))
    order = np.argsort(rows[:, 0], kind="stable")
    if (np.diff(rows[order, 0]) == 0.0).any():
        order = np.array(sorted(range(len(pending)), key=lambda index: _by_arrival(pending[index])))
    arrived, deadline, expected, memory, new, cached, prefix, first, speed = rows[order].T
    chunk, blocks = limits.prefill_chunk_tokens, [pending[index] for index in order.tolist()]
    new = np.where(prefix > 0.0, new, np.minimum(new, chunk))
    works = _works(new, cached, prefix, np.full(len(new), float(chunk)))
    return WaitingArrays(blocks, arrived, deadline, expected, memory, new, cached, prefix, first, speed, chunk, works)


def _works(new: Floats, cached: Floats, prefix: Floats, chunk_left: Floats) -> Floats:
    """``[n, 3]``: what one pass computes of each (``contracts.chunks.chunk_of``); nothing where no chunk is left."""
    counted = np.clip(chunk_left, 0.0, prefix)
    new = np.where(counted == prefix, new, counted)
    return np.stack((new, (new + cached) * new, np.where(new > 0.0, cached, 0.0)), axis=1)
