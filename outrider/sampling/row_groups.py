"""What is known of the logits rows of each generation in a ragged batch: parameters, position, tokens before.

A token mask is ``[rows, words]`` uint32: bit ``i % 32`` of word ``i // 32`` says whether token ``i`` may be chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ShapeError
from outrider.contracts.requests import SamplingParams

TokenMask = npt.NDArray[np.uint32]


class TokenCounts:
    """State of penalties of one generation: which tokens occurred, and how often in its output."""

    def __init__(self, vocab_size: int, prompt_ids: Sequence[int], output_ids: Sequence[int] = ()) -> None:
        """Count a prompt, and the output of a resumed generation."""
        self.seen = np.zeros(vocab_size, dtype=np.bool_)  # ``[vocab]``, in prompt or output
        self.output = np.zeros(vocab_size, dtype=np.int32)  # ``[vocab]``, occurrences in the output
        self.seen[np.asarray(prompt_ids, dtype=np.int64)] = True
        self.append(output_ids)

    def append(self, token_ids: Sequence[int]) -> None:
        ids = np.asarray(token_ids, dtype=np.int64)
        self.seen[ids] = True
        np.add.at(self.output, ids, 1)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Consecutive logits rows of one generation in a ragged batch; row i is conditioned on ``path[:i]``.

    Attributes:
        allowed: ``[rows, words]``, a mask of the tokens that the grammar allows in each row
            None: all.

    Raises:
        ShapeError: more rows than the path determines, or penalties without counts.
    """

    params: SamplingParams  # the request's
    position: int  # absolute position of the token that row 0 predicts: the number of tokens before it
    counts: TokenCounts | None  # tokens before ``path``; may be None unless ``params.penalised``
    path: tuple[int, ...]  # draft tokens
    rows: int  # logits rows, at most ``len(path) + 1``
    allowed: TokenMask | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rows <= len(self.path) + 1:
            raise ShapeError(
                f"a row group of {len(self.path)} draft tokens needs 0..{len(self.path) + 1} rows, found {self.rows}; "
                "pass the draft tokens every row is conditioned on"
            )
        if self.params.penalised and self.counts is None:
            raise ShapeError("a row group with penalties needs token counts, found None; pass a TokenCounts")
        if self.allowed is not None and len(self.allowed) != self.rows:
            raise ShapeError(f"a row group of {self.rows} rows needs as many masks, found {len(self.allowed)}")

    @property
    def edited(self) -> bool:
        """Whether logits of certain ids are changed at any position: by a bias, penalties or a mask."""
        return bool(self.params.logit_bias) or self.params.penalised or self.allowed is not None

    @property
    def names_tokens(self) -> bool:
        """Whether the request treats tokens by their ids: by a bias, penalties, a mask, or withheld tokens."""
        return self.edited or self.withheld_rows > 0

    @property
    def withheld_rows(self) -> int:
        """Number of leading rows that may not choose ``params.withheld_ids``."""
        params = self.params
        return min(self.rows, max(0, params.withheld_until - self.position)) if params.withheld_ids else 0


def check_rows(shape: Sequence[int], groups: Sequence[RowGroup]) -> None:
    """Raise ``ShapeError`` unless logits of this shape have a row for each of the groups'."""
    rows = sum(group.rows for group in groups)
    if len(shape) != 2 or shape[0] != rows:
        raise ShapeError(f"logits need shape [{rows}, vocab] (the rows of all groups), found {list(shape)}")


def per_row(groups: Sequence[RowGroup]) -> list[RowGroup]:
    return [group for group in groups for _ in range(group.rows)]
