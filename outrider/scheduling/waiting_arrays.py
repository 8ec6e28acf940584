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
)
_read = attrgetter(*_READ)
_by_arrival = attrgetter("arrived_at_s", "generation", "round")


@dataclass(frozen=True, slots=True)
class WaitingArrays:
    """Everything pending, by arrival, then generation, then round; ``[n]`` each.

    Attributes:
        blocks: the requests themselves.
        works: ``[n, 3]`` new tokens, interactions and cached tokens of one pass: of a cold block, those of a chunk.
    """

    blocks: list[PendingVerification]
    arrived_at_s: Floats
    deadline_at_s: Floats
    expected_tokens: Floats
    memory_blocks: Floats
    works: Floats


def waiting_arrays(pending: Sequence[PendingVerification], limits: BatchLimits) -> WaitingArrays:
    """Read each request once, in the order in which they lie in memory, and sort."""
    read = np.fromiter(chain.from_iterable(map(_read, pending)), np.float64, len(pending) * len(_READ))
    rows = read.reshape(-1, len(_READ))
    order = np.argsort(rows[:, 0], kind="stable")
    if (np.diff(rows[order, 0]) == 0.0).any():
        order = np.array(sorted(range(len(pending)), key=lambda index: _by_arrival(pending[index])))
    arrived, deadline, expected, memory, new, cached = rows[order].T
    new = np.minimum(new, limits.prefill_chunk_tokens)
    works = np.stack((new, (new + cached) * new, cached), axis=1)
    return WaitingArrays([pending[index] for index in order.tolist()], arrived, deadline, expected, memory, works)
