"""Many texts at once over one model's paged KV, sharing common prefixes.

A fork shares its text's blocks. A text that writes into a shared block first recomputes that block for itself, up to
``block_tokens - 1`` tokens. So texts can be cut, continued and forked in any order, and only new tokens are computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from outrider.contracts.exchanged import FloatRow
from outrider.engines.forward_model import ForwardModel
from outrider.engines.segments import Segment

_MOST_TOKENS = 2048  # per forward pass; a longer text gets a pass of its own


@dataclass(slots=True, eq=False)
class PagedText:
    """Change ``token_ids`` only through ``cut`` and ``extend``; the other fields belong to ``PagedTexts``."""

    token_ids: list[int]
    resident: int = 0  # tokens whose KV is in ``blocks``
    blocks: list[int] = field(default_factory=list)

    def cut(self, length: int) -> None:
        del self.token_ids[length:]
        self.resident = min(self.resident, length)

    def extend(self, token_ids: Sequence[int]) -> None:
        self.token_ids.extend(token_ids)


@dataclass(frozen=True, slots=True, eq=False)
class TextRows:
    """The last rows of some texts, as many of each as were asked for.

    ``logits`` is ``[R, vocab]``, ``hidden`` ``[R, d]`` (final norm) or None, ``starts`` the first row of each text,
    followed by R.
    """

    logits: Tensor
    hidden: Tensor | None
    starts: Sequence[int]

    def choices(self) -> list[list[int]]:
        """The argmax of each row, by text."""
        chosen = self.logits.float().argmax(-1).tolist()
        return [chosen[start:stop] for start, stop in zip(self.starts, self.starts[1:], strict=False)]

    def hidden_of(self, text: int, rows: Sequence[int]) -> FloatRow:
        """``[len(rows), d]`` float32: some rows of a text."""
        assert self.hidden is not None, "asked for"
        wanted = [self.starts[text] + row for row in rows]
        found: FloatRow = self.hidden[wanted].to(torch.float32).cpu().numpy()
        return found.astype(np.float32)


class PagedTexts:
    def __init__(self, model: ForwardModel, vocab_size: int) -> None:
        """Take the whole pool; logits are cut to ``vocab_size``."""
        self._model, self._vocab_size = model, vocab_size
        self._size = model.block_tokens
        self._users = [0] * model.total_blocks
        self._free = list(reversed(range(model.total_blocks)))

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def total_blocks(self) -> int:
        return len(self._users)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._size)

    def fork(self, text: PagedText, length: int) -> PagedText:
        """Start a text with the first ``length`` tokens of another, sharing its blocks."""
        blocks = text.blocks[: self.blocks_for(min(length, text.resident))]
        for block in blocks:
            self._users[block] += 1
        return PagedText(text.token_ids[:length], min(length, text.resident), blocks)

    def release(self, text: PagedText) -> None:
        """Free the text's blocks; running it again recomputes them."""
        self._drop(text, 0)
        text.resident = 0

    def run(self, texts: Sequence[PagedText], rows: Sequence[int], *, want_hidden: bool = False) -> TextRows:
        """Compute the non-resident tokens of each text; return its last ``rows`` rows."""
        segments = [self._segment(text, wanted) for text, wanted in zip(texts, rows, strict=True)]
        results = [self._model.forward(part, want_hidden=want_hidden) for part in _parts(segments)]
        for text in texts:
            text.resident = len(text.token_ids)
        hidden = [result.hidden for result in results if result.hidden is not None]
        logits = _together([result.logits[:, : self._vocab_size] for result in results])
        return TextRows(logits, _together(hidden) if hidden else None, [0, *accumulate(rows)])

    def _segment(self, text: PagedText, rows: int) -> Segment:
        length = len(text.token_ids)
        start = min(text.resident, length - max(1, rows))  # logits are not kept: wanted rows are computed again
        first = start // self._size
        if first < len(text.blocks) and self._users[text.blocks[first]] > 1:
            start = first * self._size
            self._drop(text, first)
        while len(text.blocks) < self.blocks_for(length):
            assert self._free, "a pool holds all texts that are run at once"
            block = self._free.pop()
            self._users[block] = 1
            text.blocks.append(block)
        return Segment(text.token_ids[start:], start, list(text.blocks), rows)

    def _drop(self, text: PagedText, first: int) -> None:
        for block in text.blocks[first:]:
            self._users[block] -= 1
            if not self._users[block]:
                self._free.append(block)
        del text.blocks[first:]


def _together(parts: list[Tensor]) -> Tensor:
    """Concatenate, but do not copy a single part: logits are large."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _parts(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Split segments, in order, into passes of at most ``_MOST_TOKENS``."""
    parts: list[list[Segment]] = []
    tokens = _MOST_TOKENS
    for segment in segments:
        tokens += len(segment.token_ids)
        if tokens > _MOST_TOKENS:
            parts.append([])
            tokens = len(segment.token_ids)
        parts[-1].append(segment)
    return parts
