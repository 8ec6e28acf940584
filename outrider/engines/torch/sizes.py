"""Numbers of rows at which a kernel gives each row the same bits, whatever its place and its company.

A kernel chooses by the shape of a call in which order it adds up, so a row's result may depend on how many others are
computed with it. Calls are therefore made with some numbers of rows only: those that a trial on this machine has shown
to agree. What lies between two of them is filled up.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

log = logging.getLogger(__name__)

LARGEST = 64
_TURN = 5  # places
_TRIED = (*range(1, 8), *range(8, LARGEST, 4))  # beside the largest


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``first .. last - 1``, computed as if they were ``size``."""

    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of rows that agree, ascending; the last is ``LARGEST``."""

    counts: tuple[int, ...]

    def pieces(self, rows: int) -> Iterator[Piece]:
        """How to compute so many rows."""
        for first in range(0, rows, LARGEST):
            last = min(rows, first + LARGEST)
            yield Piece(first, last, self.at_least(last - first))

    def at_least(self, rows: int) -> int:
        """The smallest that holds as many, which are ``LARGEST`` at most."""
        return next(count for count in self.counts if count >= rows)


ANY = Sizes(tuple(range(1, LARGEST + 1)))


def agreeing(compute: Callable[[Tensor], Tensor], rows: Tensor) -> Sizes:
    """Those at which ``compute`` gives every row what it gives among ``LARGEST``.

    Args:
        compute: row by row, as far as mathematics goes.
        rows: ``[LARGEST, ...]``, on which the order of adding up shows: sums that nearly cancel.
    """
    expected = compute(rows)
    if not torch.equal(compute(rows.roll(_TURN, 0)), expected.roll(_TURN, 0)):
        log.warning("answers may depend on company: on this machine a row's bits depend on its place")

    def agrees(count: int) -> bool:
        places = {0, (LARGEST - count) // 2, LARGEST - count}
        return all(torch.equal(compute(rows[at : at + count]), expected[at : at + count]) for at in places)

    return Sizes((*filter(agrees, _TRIED), LARGEST))
