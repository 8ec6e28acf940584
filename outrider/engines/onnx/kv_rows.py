"""KV of generations as rows of shared buffers: a generation has one row, and taking tokens back is a smaller length.

All rows are equally long, so that neighbours can be computed in one pass. Rows grow by doubling, and shrink when one
more is needed. The longer they are, the fewer fit the budget; those that have not been used for longest lose theirs.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import KvUsage
from outrider.engines.onnx.exported import KvShape

_SHORTEST = 256  # positions of a row


@dataclass(slots=True, eq=False)
class KvRow:
    """KV of one generation; ``index`` None: it has no row at present, and nothing is computed."""

    order: int  # rank of opening
    index: int | None = None
    computed_tokens: int = 0
    last_used: int = 0
    blocks: tuple[int, ...] = ()  # a chain's accepted KV needs no moving

    def rollback(self, tokens: int) -> None:
        self.computed_tokens = min(self.computed_tokens, tokens)


class KvRows:
    """``buffers``: keys and values by layer, each ``[rows, heads, length, width]``; replaced when rows grow."""

    def __init__(self, shape: KvShape, budget_bytes: int | None, most_tokens: int) -> None:
        """Allocate nothing yet. A budget without room for one short text is a ``ParameterError``."""
        needed = _SHORTEST * shape.token_bytes
        if budget_bytes is None or budget_bytes < needed:
            raise ParameterError("kv budget", f"at least {needed} bytes ({_SHORTEST} positions)", budget_bytes)
        self._shape, self._budget_tokens = shape, budget_bytes // shape.token_bytes
        self.most_tokens = min(most_tokens, self._budget_tokens)  # of one generation
        self.rows, self.length = 0, 0
        self.buffers: list[npt.NDArray[np.int8 | np.float32]] = [np.zeros((0,), shape.dtype)] * (2 * shape.layers)
        self.moved = 0  # times that buffers were replaced
        self._by_index: dict[int, KvRow] = {}
        self._opened = self._clock = self._evictions = self._evicted = 0

    def open(self) -> KvRow:
        self._opened += 1
        return KvRow(self._opened)

    def close(self, row: KvRow) -> None:
        if row.index is not None:
            del self._by_index[row.index]
        row.index, row.computed_tokens = None, 0

    def reserve(self, row: KvRow, tokens: int, kept: Collection[KvRow]) -> bool:
        """Give a row room for ``tokens`` positions; whether there is, without taking it from those ``kept``."""
        self._clock += 1
        row.last_used = self._clock
        length = self._length_for(tokens)
        if row.index is not None and length <= self.length:
            return True
        others = [one for one in self._by_index.values() if one is not row]
        if others and len(others) < self.rows and length <= self.length:
            length = self.length
        else:  # buffers may be replaced: by such as are no longer than their rows need
            length = max([length, *(self._length_for(one.computed_tokens) for one in others)])
        most = self._budget_tokens // length
        if sum(one is not row for one in kept) >= most:
            return False
        for one in sorted((one for one in others if one not in kept), key=lambda one: one.last_used):
            if len(others) < most:
                break
            others.remove(one)
            self._evict(one)
        if length != self.length or len(others) >= self.rows:
            self._resize(min(most, max(len(others) + 1, 2 * self.rows)), length)
        if row.index is None:
            row.index = next(index for index in range(self.rows) if index not in self._by_index)
            self._by_index[row.index] = row
        return True

    def at(self, index: int) -> KvRow | None:
        return self._by_index.get(index)

    def spans(self, indices: Collection[int]) -> list[range]:
        """Return ranges that cover ``indices``, each to be computed in one pass.

        A single row between two is computed, too, behind what is valid of it: a third of the pass that it spares.
        """
        found: list[range] = []
        for index in sorted(indices):
            if found and (index == found[-1].stop or (index == found[-1].stop + 1 and self._has_room(index - 1))):
                found[-1] = range(found[-1].start, index + 1)
            else:
                found.append(range(index, index + 1))
        return found

    def usage(self, generations: int) -> KvUsage:
        """Return the use of memory; a block is one position."""
        used = sum(row.computed_tokens for row in self._by_index.values())
        return KvUsage(1, self._budget_tokens, used, 0, generations, self._evictions, evicted_blocks=self._evicted)

    def _has_room(self, index: int) -> bool:
        row = self._by_index.get(index)
        return row is None or row.computed_tokens < self.length

    def _evict(self, row: KvRow) -> None:
        self._evictions += 1
        self._evicted += row.computed_tokens
        self.close(row)

    def _length_for(self, tokens: int) -> int:
        return min(self.most_tokens, max(_SHORTEST, 1 << (tokens - 1).bit_length()))

    def _resize(self, rows: int, length: int) -> None:
        held = [self._by_index[index] for index in sorted(self._by_index)]
        for number, old in enumerate(self.buffers):
            new = np.zeros((rows, self._shape.heads, length, self._shape.width), self._shape.dtype)
            for index, row in enumerate(held):
                new[index, :, : row.computed_tokens] = old[row.index, :, : row.computed_tokens]
            self.buffers[number] = new
        for index, row in enumerate(held):
            row.index = index
        self._by_index = dict(enumerate(held))
        self.rows, self.length, self.moved = rows, length, self.moved + 1
