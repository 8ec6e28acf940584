"""Numbers of rows at which a kernel is batch-invariant: each row has the same bits at any place in any batch.

A kernel chooses the order of its sums by the shape of a call, so a row's result may depend on how many rows are
computed with it. Calls are therefore made only with numbers of rows that agreed in a trial on this machine. A call with
another number of rows is filled up to the next that agrees.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

log = logging.getLogger(__name__)

LARGEST = 64
_TURN = 5  # places by which rows are rotated, to try whether a row's place matters
_TRIED = (*range(1, 8), *range(8, LARGEST, 4))  # besides LARGEST, the reference


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``first .. last - 1``, computed in a call of ``size`` rows."""

    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of rows that agree bit for bit, ascending; the last is ``LARGEST``."""

    counts: tuple[int, ...]

    def pieces(self, rows: int) -> Iterator[Piece]:
        """Divide a number of rows into calls."""
        for first in range(0, rows, LARGEST):
            last = min(rows, first + LARGEST)
            yield Piece(first, last, self.at_least(last - first))

    def at_least(self, rows: int) -> int:
        """Return the smallest size that holds ``rows``, which are at most ``LARGEST``."""
        return next(count for count in self.counts if count >= rows)


ANY = Sizes(tuple(range(1, LARGEST + 1)))


def agreeing(compute: Callable[[Tensor], Tensor], rows: Tensor) -> Sizes:
    """Return the numbers of rows at which ``compute`` gives every row the bits it has among ``LARGEST`` rows.

    Args:
        compute: a function that is mathematically row by row.
        rows: ``[LARGEST, ...]``, whose sums nearly cancel, so that their order shows.
    """
    expected = compute(rows)
    if not torch.equal(compute(rows.roll(_TURN, 0)), expected.roll(_TURN, 0)):
        log.warning("answers may depend on the batch: on this machine a row's bits depend on its place")

    def agrees(count: int) -> bool:
        places = {0, (LARGEST - count) // 2, LARGEST - count}
        return all(torch.equal(compute(rows[at : at + count]), expected[at : at + count]) for at in places)

    return Sizes((*filter(agrees, _TRIED), LARGEST))
