"""From the model's logits to the logits a request samples from.

One ragged batch holds the rows of many generations; every edit is one vectorised operation over the rows that ask for
it, and rows that ask for nothing are neither copied nor sorted. A row's result never depends on its batch mates.

Order (``SamplingParams``): logit bias, repetition penalty, presence and frequency penalties, withheld tokens, grammar,
temperature, top-k, top-p, min-p. Each truncation looks at what the one before it kept, and keeps every token tied with
the last one kept: ties cannot be broken by the order a sort happens to give.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from outrider.contracts.errors import ShapeError
from outrider.contracts.requests import SamplingParams
from outrider.sampling.device_tensors import at_once, index_tensor, on_device
from outrider.sampling.token_edits import TokenMask, edit_tokens

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
        allowed: ``[rows, words]``, the tokens each row may choose by the request's grammar, a bit for each
            (``outrider.sampling.token_edits``); None: all.

    Raises:
        ShapeError: rows without the draft tokens they are conditioned on, or penalties without counts.
    """

    params: SamplingParams
    position: int
    counts: TokenCounts | None
    path: tuple[int, ...]
    rows: int
    allowed: TokenMask | None = None

    def __post_init__(self) -> None:
        """Refuse a group whose rows are not all determined."""
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
        """Whether logits are changed by tokens' ids, whatever their position: by a bias, penalties, a mask."""
        return bool(self.params.logit_bias) or self.params.penalised or self.allowed is not None

    @property
    def names_tokens(self) -> bool:
        """Whether the request asks for anything of tokens by their ids: a bias, penalties, a mask, some withheld."""
        return self.edited or self.withheld_rows > 0

    @property
    def withheld_rows(self) -> int:
        """How many leading rows may not choose ``params.withheld_ids``."""
        params = self.params
        return min(self.rows, max(0, params.withheld_until - self.position)) if params.withheld_ids else 0


def check_rows(logits: Tensor, groups: Sequence[RowGroup]) -> None:
    """Check that ``groups`` describe every row of ``logits``; else a ``ShapeError``."""
    rows = sum(group.rows for group in groups)
    if logits.ndim != 2 or logits.shape[0] != rows:
        raise ShapeError(f"logits need shape [{rows}, vocab] (the rows of all groups), found {list(logits.shape)}")


def per_row(groups: Sequence[RowGroup]) -> list[RowGroup]:
    """The group of each of the R rows."""
    return [group for group in groups for _ in range(group.rows)]


def adjust_logits(logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    """Apply each request's bias, penalties, withheld tokens, grammar, temperature and truncation.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order. Greedy groups get neither temperature nor truncation.

    Returns:
        ``[R, vocab]`` float32, defined up to a constant per row, removed tokens -inf. It is ``logits`` itself if
        those are float32 and nothing is to be done.

    Raises:
        ParameterError: a logit bias names a token outside the vocabulary.
    """
    check_rows(logits, groups)
    adjusted = logits.float()
    if not any(map(edits, groups)):
        return adjusted
    if adjusted is logits or not adjusted.is_contiguous():
        adjusted = adjusted.clone(memory_format=torch.contiguous_format)
    placed = list(zip(accumulate((group.rows for group in groups), initial=0), groups, strict=False))
    edit_tokens(adjusted, placed)
    sampled = [(start, group) for start, group in placed if not group.params.greedy]
    for name, shape in _SHAPES.items():
        neutral = getattr(_NEUTRAL, name)
        asked = [
            (row, limit)
            for start, group in sampled
            if (limit := getattr(group.params, name)) != neutral
            for row in range(start, start + group.rows)
        ]
        _edit_rows(adjusted, asked, shape)
    return adjusted


def edits(group: RowGroup) -> bool:
    """Whether ``adjust_logits`` changes any of these rows."""
    params = group.params
    edited = group.edited
    if not (edited or params.greedy):
        edited = any(getattr(params, name) != getattr(_NEUTRAL, name) for name in _SHAPES)
    return bool(group.rows) and (edited or group.withheld_rows > 0)


class _Limits:
    """What each of the rows asks for: the host's numbers, and on the rows' device when those are wanted there."""

    def __init__(self, values: Sequence[float], device: torch.device) -> None:
        self.column = torch.tensor(values, dtype=torch.float64)[:, None]  # on the host
        self.largest = max(values)
        self._device = device

    def there(self, column: Tensor) -> Tensor:
        """A column of the host's beside the rows."""
        return on_device(column, self._device)


def _edit_rows(
    adjusted: Tensor, settings: Sequence[tuple[int, float]], edit: Callable[[Tensor, _Limits], None]
) -> None:
    """Run ``edit(rows, limits)`` in place on the rows named in ``settings``."""
    if not settings:
        return
    limits = _Limits([limit for _, limit in settings], adjusted.device)
    if len(settings) == adjusted.shape[0]:
        edit(adjusted, limits)
        return
    index = index_tensor([row for row, _ in settings], adjusted.device)
    rows = adjusted[index]
    edit(rows, limits)
    adjusted[index] = rows


def _scale(rows: Tensor, temperatures: _Limits) -> None:
    # The largest logit moves to 0 first: any temperature is then safe from overflow.
    rows -= rows.amax(dim=-1, keepdim=True)
    rows /= temperatures.there(temperatures.column.float().clamp_min(torch.finfo(torch.float32).tiny))


def _top_k(rows: Tensor, top_k: _Limits) -> None:
    vocab = rows.shape[1]
    best = rows.topk(min(int(top_k.largest), vocab), dim=-1).values
    _remove_below(rows, best.gather(1, top_k.there(top_k.column.clamp_max(vocab).long() - 1)))


def _top_p(rows: Tensor, limits: _Limits) -> None:
    """Keep the smallest set of most probable tokens whose mass reaches top_p (TSLT eq. 14, corrected).

    Sorts only as many candidates as the least certain row needs. A device with its own queue sorts all: asking how
    many are needed would make the host wait for it.
    """
    vocab = rows.shape[1]
    top_p = limits.there(limits.column)
    confidence = rows.softmax(dim=-1).amax(dim=-1, keepdim=True).double()
    least = torch.empty_like(confidence, dtype=torch.float32)  # [n, 1], logit of the last token kept
    pending = torch.arange(rows.shape[0], device=rows.device)
    candidates = vocab if at_once(rows.device) else _TOP_P_FIRST_CANDIDATES
    while pending.numel():
        undecided = rows if pending.numel() == rows.shape[0] else rows[pending]
        best = undecided.topk(min(candidates, vocab), dim=-1).values
        mass = ((best - best[:, :1]).exp() * confidence[pending]).cumsum(dim=-1)
        kept = (mass < top_p[pending]).sum(dim=-1, keepdim=True)  # tokens before the one that reaches top_p
        least[pending] = best.gather(1, kept.clamp_max(best.shape[1] - 1))
        if candidates >= vocab:
            break
        pending = pending[kept[:, 0] == best.shape[1]]
        candidates *= _TOP_P_GROWTH
    _remove_below(rows, least)


def _min_p(rows: Tensor, min_p: _Limits) -> None:
    _remove_below(rows, rows.amax(dim=-1, keepdim=True) + min_p.there(min_p.column.log().float()))


# What shapes the rows that are sampled from: by parameter, in the order of application.
_SHAPES: Mapping[str, Callable[[Tensor, _Limits], None]] = {
    "temperature": _scale,
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
}
_NEUTRAL = SamplingParams()  # asks for nothing


def _remove_below(rows: Tensor, least: Tensor) -> None:
    """Set what is below ``least`` (``[n, 1]``) to -inf; what equals it stays."""
    if at_once(rows.device):
        rows.masked_fill_(rows < least, _REMOVED)
        return
    # threshold_ removes what is equal, too; on a CPU it takes a fortieth of the time of masked_fill_.
    removed = least.nextafter(torch.full_like(least, _REMOVED))
    for row, limit in zip(rows, removed.flatten().tolist(), strict=True):
        torch.threshold_(row, limit, _REMOVED)
