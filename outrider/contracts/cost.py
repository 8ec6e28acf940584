"""Cost model of a verification batch: WISP's linear model (eq. 18, 19), with offsets for small batches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError

Seconds = TypeVar("Seconds", float, npt.NDArray[np.float64])

EXACT_ROWS = 16  # up to this many new positions each number has its own bucket; above, one per power of two
LARGEST_ROWS = 8192  # upper end of the last bucket, which all larger numbers share
_FLOOR_S = 1e-6  # smallest prediction


def row_bucket(new_tokens: int) -> int:
    """Return the index of a number of new positions in ``LinearCostModel.row_offsets_s``; 0 is no position."""
    if new_tokens <= EXACT_ROWS:
        return max(0, new_tokens)
    return _BEHIND_EXACT + (min(new_tokens, LARGEST_ROWS) - 1).bit_length()


_BEHIND_EXACT = EXACT_ROWS + 1 - EXACT_ROWS.bit_length()
ROW_BUCKETS = row_bucket(LARGEST_ROWS) + 1


def bucket_rows(bucket: int) -> tuple[int, int]:
    """Return the smallest and largest number of new positions of a bucket."""
    if bucket <= EXACT_ROWS:
        return bucket, bucket
    last = 1 << (bucket - _BEHIND_EXACT)
    return last // 2 + 1, last


@dataclass(frozen=True, slots=True)
class VerifyCost:
    new_tokens: int  # positions to compute
    cached_tokens: int  # positions whose KV is only read


class BatchWork(NamedTuple):
    """Terms of the cost of a whole batch: sums over its blocks (WISP eq. 18)."""

    new_tokens: int = 0
    interactions: int = 0  # sum of (new + cached) * new
    cached_tokens: int = 0

    def plus(self, cost: VerifyCost) -> "BatchWork":
        """Return the sums with one block more: a block's marginal cost takes two predictions, at any batch size."""
        new, cached = cost.new_tokens, cost.cached_tokens
        return BatchWork(self.new_tokens + new, self.interactions + (new + cached) * new, self.cached_tokens + cached)


def work_of(batch: Iterable[VerifyCost]) -> BatchWork:
    new = interactions = cached = 0
    for cost in batch:
        new += cost.new_tokens
        interactions += (cost.new_tokens + cost.cached_tokens) * cost.new_tokens
        cached += cost.cached_tokens
    return BatchWork(new, interactions, cached)


def work_of_alike(block: VerifyCost, blocks: int) -> BatchWork:
    new, cached = block.new_tokens, block.cached_tokens
    return BatchWork(blocks * new, blocks * (new + cached) * new, blocks * cached)


class CostModel(Protocol):
    def predict_s(self, batch: Sequence[VerifyCost]) -> float: ...

    def predict_work_s(self, work: tuple[int, int, int]) -> float:
        """Return the same from a batch's sums, a ``BatchWork``."""

    def predict_works_s(self, works: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the same for many batches: ``[n, 3]`` new, interactions, cached; returns ``[n]`` seconds."""

    def guard_s(self, predicted_s: Seconds) -> Seconds:
        """Return the time to keep free after each prediction, learned from underestimates (WISP's delta)."""


@dataclass(frozen=True, slots=True)
class LinearCostModel:
    """T = a * sum new + b_compute * sum (total * new) + b_read * sum cached + c + offset  (WISP eq. 18, 19).

    The offset is an addition to WISP. It depends on the number of new positions only: the time of small matrix
    products is not linear in their rows.
    """

    seconds_per_token: float
    seconds_per_interaction: float
    seconds_per_cached_token: float
    seconds_per_batch: float
    row_offsets_s: tuple[float, ...] = ()  # ``ROW_BUCKETS`` numbers of either sign; empty: eq. 19 as printed
    relative_guard: float = 0.0  # guard time as a share of the prediction

    def __post_init__(self) -> None:
        if len(self.row_offsets_s) not in (0, ROW_BUCKETS):
            raise ParameterError("row_offsets_s", f"none or {ROW_BUCKETS} numbers", len(self.row_offsets_s))

    @property
    def slopes(self) -> tuple[float, float, float, float]:
        per_token, per_interaction = self.seconds_per_token, self.seconds_per_interaction
        return per_token, per_interaction, self.seconds_per_cached_token, self.seconds_per_batch

    def predict_s(self, batch: Sequence[VerifyCost]) -> float:
        return self.predict_work_s(work_of(batch))

    def predict_work_s(self, work: tuple[int, int, int]) -> float:
        """Apply the formula to a batch's sums. It is written out, not ``_seconds``: this is the most frequent call."""
        new, interactions, cached = work
        seconds = (
            self.seconds_per_batch
            + self.seconds_per_token * new
            + self.seconds_per_interaction * interactions
            + self.seconds_per_cached_token * cached
        )
        if self.row_offsets_s:
            seconds += self.row_offsets_s[row_bucket(new)]
        return seconds if seconds > _FLOOR_S else _FLOOR_S  # noqa: FURB136 (a fifth of the call)

    def predict_works_s(self, works: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        seconds: npt.NDArray[np.float64] = self.seconds_per_batch + works @ np.array(self.slopes[:3])
        if self.row_offsets_s:
            seconds += np.take(self.row_offsets_s, row_buckets(works[:, 0]))
        return np.maximum(seconds, _FLOOR_S)

    def guard_s(self, predicted_s: Seconds) -> Seconds:
        return self.relative_guard * predicted_s

    def predict_alike_s(self, block: VerifyCost, blocks: float) -> float:
        """Predict a pass over ``blocks`` copies of one block; ``blocks`` may be a mean and need not be whole."""
        new, cached = block.new_tokens, block.cached_tokens
        return self._seconds(
            blocks * new, blocks * (new + cached) * new, blocks * cached, max(1, round(blocks * new)) if new else 0
        )

    def _seconds(self, new: float, interactions: float, cached: float, rows: int) -> float:
        seconds = (
            self.seconds_per_batch
            + self.seconds_per_token * new
            + self.seconds_per_interaction * interactions
            + self.seconds_per_cached_token * cached
        )
        if self.row_offsets_s:
            seconds += self.row_offsets_s[row_bucket(rows)]
        return max(seconds, _FLOOR_S)


def row_buckets(new_tokens: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    rows = np.clip(np.rint(new_tokens), 0, LARGEST_ROWS)
    doublings = np.frexp(rows - 1)[1]  # the exponent of an integer is its bit length
    buckets: npt.NDArray[np.int64] = np.where(rows <= EXACT_ROWS, rows, _BEHIND_EXACT + doublings).astype(np.int64)
    return buckets


# The embedded target in float32 on one CPU thread (docs/archive/engines.md); the online estimator adapts it.
DEFAULT_COST_MODEL = LinearCostModel(
    seconds_per_token=4.5e-3, seconds_per_interaction=2.0e-7, seconds_per_cached_token=8.0e-6, seconds_per_batch=45e-3
)
