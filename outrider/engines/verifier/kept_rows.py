"""Target logits rows kept for deferred corrections: one per generation, evicted least recently used first.

An evicted row is computed again from the last committed token, so eviction costs time but not correctness.
"""

from collections import OrderedDict

from torch import Tensor

from outrider.contracts.requests import GenerationId


class KeptRows:
    """The target's raw logits after the committed sequence, of generations whose correction is deferred."""

    def __init__(self, budget_bytes: int) -> None:
        """Keep at most ``budget_bytes`` of rows, and always the last one."""
        self._budget_bytes = budget_bytes
        self._rows: OrderedDict[GenerationId, Tensor] = OrderedDict()

    @property
    def kept_bytes(self) -> int:
        return sum(row.nbytes for row in self._rows.values())

    def keep(self, generation: GenerationId, row: Tensor) -> None:
        """Hold a generation's ``[vocab]`` row in place of its previous one; evict others to stay within the budget."""
        self.drop(generation)
        self._rows[generation] = row
        while self.kept_bytes > self._budget_bytes and len(self._rows) > 1:
            self._rows.popitem(last=False)

    def get(self, generation: GenerationId) -> Tensor | None:
        row = self._rows.get(generation)
        if row is not None:
            self._rows.move_to_end(generation)
        return row

    def drop(self, generation: GenerationId) -> None:
        self._rows.pop(generation, None)
