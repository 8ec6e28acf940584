"""From the model's logits to the logits a request samples from.

One ragged batch holds the rows of many generations; every edit is one vectorised operation over the rows that ask for
it, and rows that ask for nothing are neither copied nor sorted. A row's result never depends on its batch mates.

Order (``SamplingParams``): logit bias, repetition penalty, presence and frequency penalties, temperature, top-k,
top-p, min-p. Each truncation looks at what the one before it kept, and keeps every token tied with the last one kept:
ties cannot be broken by the order a sort happens to give.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from torch import Tensor

from outrider.errors import ParameterError, ShapeError
from outrider.types import SamplingParams

_REMOVED = float("-inf")
_TOP_P_FIRST_CANDIDATES = 64
_TOP_P_GROWTH = 8


class TokenCounts:
    """What penalties need of one generation: which tokens occurred, and how often in its output."""

    def __init__(self, vocab_size: int, prompt_ids: Sequence[int], output_ids: Sequence[int] = ()) -> None:
        """Count a prompt and the output committed so far (a resumed generation has some)."""
        self.seen = np.zeros(vocab_size, dtype=np.bool_)  # [vocab], in prompt or output
        self.output = np.zeros(vocab_size, dtype=np.int32)  # [vocab], occurrences in the output
        self.seen[np.asarray(prompt_ids, dtype=np.int64)] = True
        self.append(output_ids)

    def append(self, token_ids: Sequence[int]) -> None:
        """Count committed output tokens."""
        ids = np.asarray(token_ids, dtype=np.int64)
        self.seen[ids] = True
        np.add.at(self.output, ids, 1)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The consecutive logits rows of one generation in a ragged batch; row i is conditioned on ``path[:i]``.

    Attributes:
        params: the request's.
        position: absolute position of the token row 0 predicts: the number of tokens before it.
        counts: tokens before ``path``; may be None unless ``params.penalised``.
        path: draft tokens.
        rows: logits rows, at most ``len(path) + 1``.

    Raises:
        ShapeError: rows without the draft tokens they are conditioned on, or penalties without counts.
    """

    params: SamplingParams
    position: int
    counts: TokenCounts | None
    path: tuple[int, ...]
    rows: int

    def __post_init__(self) -> None:
        """Refuse a group whose rows are not all determined."""
        if not 0 <= self.rows <= len(self.path) + 1:
            raise ShapeError(
                f"a row group of {len(self.path)} draft tokens needs 0..{len(self.path) + 1} rows, found {self.rows}; "
                "pass the draft tokens every row is conditioned on"
            )
        if self.params.penalised and self.counts is None:
            raise ShapeError("a row group with penalties needs token counts, found None; pass a TokenCounts")


def check_rows(logits: Tensor, groups: Sequence[RowGroup]) -> None:
    """Check that ``groups`` describe every row of ``logits``.

    Raises:
        ShapeError: they do not.
    """
    rows = sum(group.rows for group in groups)
    if logits.ndim != 2 or logits.shape[0] != rows:
        raise ShapeError(f"logits need shape [{rows}, vocab] (the rows of all groups), found {list(logits.shape)}")


def per_row[T](groups: Sequence[RowGroup], value: Callable[[RowGroup], T]) -> list[T]:
    """One value per group, repeated for each of its rows."""
    return [item for group in groups for item in [value(group)] * group.rows]


def adjust_logits(logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    """Apply each request's bias, penalties, temperature and truncation.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order. Greedy groups get bias and penalties only.

    Returns:
        ``[R, vocab]`` float32, defined up to a constant per row, removed tokens -inf. It is ``logits`` itself if
        those are float32 and nothing is to be done.

    Raises:
        ShapeError: the groups' rows do not add up to R.
        ParameterError: a logit bias names a token outside the vocabulary.
    """
    check_rows(logits, groups)
    adjusted = logits.float()
    if adjusted is logits and any(_edits(group.params) for group in groups):
        adjusted = logits.clone()
    start = 0
    for group in groups:
        rows = adjusted[start : start + group.rows]
        start += group.rows
        if group.params.logit_bias:
            _add_bias(rows, group.params)
        if group.params.penalised:
            _penalise(rows, group)
    sampled = [group.params for group in groups if not group.params.greedy]
    if any(params.temperature != 1.0 for params in sampled):
        _scale(adjusted, per_row(groups, lambda group: group.params.temperature or 1.0))
    vocab = logits.shape[1]
    if any(0 < params.top_k < vocab for params in sampled):
        _truncate(adjusted, groups, _keep_top_k, lambda params: float(params.top_k % max(params.top_k, vocab)), off=0.0)
    if any(params.top_p < 1.0 for params in sampled):
        _truncate(adjusted, groups, _keep_top_p, lambda params: params.top_p, off=1.0)
    if any(params.min_p > 0.0 for params in sampled):
        _truncate(adjusted, groups, _keep_min_p, lambda params: params.min_p, off=0.0)
    return adjusted
