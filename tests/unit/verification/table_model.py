"""A causal LM that is a table, behind the interface of the real ones: its KV are the tokens themselves."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from outrider.engines.forward_model import PassResult
from outrider.engines.segments import BlockCopy, Move, Segment

Logits = Callable[[tuple[int, ...]], npt.NDArray[np.float32]]  # by the tokens of the whole sequence

BLOCK_TOKENS, BLOCKS = 4, 64


class BranchTable:
    """``BranchModel``. A token's context is read from the KV slots its sequence holds, so a wrong slot shows."""

    total_blocks, block_tokens = BLOCKS, BLOCK_TOKENS

    def __init__(self, logits_of: Logits, vocab: int) -> None:
        self.no_logits = torch.zeros(0, vocab)
        self._logits_of = logits_of
        self._slots = np.full(BLOCKS * BLOCK_TOKENS, -1)

    def forward(
        self, segments: Sequence[Segment], copies: Sequence[BlockCopy] = (), *, want_hidden: bool = False
    ) -> PassResult:
        """Write tokens; look up the rows of the last ones."""
        assert not want_hidden
        for copy in copies:
            self._slots[_slots([copy.target])] = self._slots[_slots([copy.source])]
        rows = [row for segment in segments for row in self._rows(segment)]
        return PassResult(torch.from_numpy(np.stack(rows)) if rows else self.no_logits, None)

    def _rows(self, segment: Segment) -> list[npt.NDArray[np.float32]]:
        slots = _slots(segment.blocks)
        self._slots[slots[segment.start : segment.stop]] = segment.token_ids
        tokens = self._slots[slots[: segment.stop]].tolist()
        first = segment.tree_start
        rows = []
        for slot in range(segment.stop - segment.logit_rows, segment.stop):
            behind, node = list[int](), slot - first
            while node >= 0 and segment.parents:
                behind.append(tokens[first + node])
                node = segment.parents[node]
            before = tokens[: slot + 1] if slot < first else tokens[:first]
            rows.append(self._logits_of((*before, *behind[::-1])))
        return rows


class MaskedTable(BranchTable):
    """``MaskedModel``."""

    def move(self, moves: Sequence[Move]) -> None:
        """Copy slots of sequences."""
        for move in moves:
            slots = _slots(move.blocks)
            self._slots[slots[list(move.targets)]] = self._slots[slots[list(move.sources)]]


def _slots(blocks: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.arange(BLOCKS * BLOCK_TOKENS).reshape(BLOCKS, BLOCK_TOKENS)[list(blocks)].ravel()
