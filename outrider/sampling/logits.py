"""Adjust the model's logits to those a request samples from: bias, penalties, masks, temperature and truncation.

A ragged batch holds the rows of many generations. Every edit is one vectorised operation over the rows that ask for it;
other rows are neither copied nor sorted. A row's result never depends on the rest of the batch.

Order (``SamplingParams``): logit bias, repetition penalty, presence and frequency penalties, withheld tokens, grammar,
temperature, top-k, top-p, min-p. Each truncation works on what the one before it kept. Of equal logits top-k and top-p
keep the lowest ids, as does a min-p of 1: bfloat16 has so few numbers that the two largest logits are often equal, and
these parameters at their strictest mean the one token that a greedy request gets.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from outrider.contracts.requests import SamplingParams
from outrider.sampling.device_tensors import at_once, index_tensor, on_device
from outrider.sampling.row_groups import RowGroup, check_rows
from outrider.sampling.token_edits import edit_tokens

_REMOVED = float("-inf")
_TOP_P_FIRST_CANDIDATES = 64
_TOP_P_GROWTH = 8


def adjust_logits(logits: Tensor, groups: Sequence[RowGroup]) -> Tensor:
    """Apply each request's bias, penalties, withheld tokens, grammar, temperature and truncation.

    Args:
        logits: ``[R, vocab]``, any float type; never written to.
        groups: describe the rows in order. Greedy groups get neither temperature nor truncation.

    Returns:
        ``[R, vocab]`` float32, up to a constant per row; removed tokens are -inf. It is ``logits`` itself if these are
        float32 and no group edits them.

    Raises:
        ParameterError: a logit bias names a token outside the vocabulary.
    """
    check_rows(logits.shape, groups)
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
    """Whether ``adjust_logits`` changes any row of a group."""
    params = group.params
    edited = group.edited
    if not (edited or params.greedy):
        edited = any(getattr(params, name) != getattr(_NEUTRAL, name) for name in _SHAPES)
    return bool(group.rows) and (edited or group.withheld_rows > 0)


class _Limits:
    """Values of one parameter for some rows, on the host and, where needed, on the rows' device."""

    def __init__(self, values: Sequence[float], device: torch.device) -> None:
        self.column = torch.tensor(values, dtype=torch.float64)[:, None]  # on the host
        self.largest = max(values)
        self._device = device

    def there(self, column: Tensor) -> Tensor:
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
    # The largest logit is shifted to 0 first, so that no temperature overflows; tiny keeps a temperature above 0.
    rows -= rows.amax(dim=-1, keepdim=True)
    rows /= temperatures.there(temperatures.column.float().clamp_min(torch.finfo(torch.float32).tiny))


def _top_k(rows: Tensor, top_k: _Limits) -> None:
    vocab = rows.shape[1]
    best = rows.topk(min(int(top_k.largest), vocab), dim=-1).values
    kept = top_k.there(top_k.column.clamp_max(vocab).long())
    _keep_best(rows, best.gather(1, kept - 1), kept)


def _top_p(rows: Tensor, limits: _Limits) -> None:
    """Keep the smallest set of most probable tokens whose mass reaches top_p (TSLT eq. 14, corrected).

    On a CPU only as many candidates are sorted as the least certain row needs. An accelerator sorts all: asking how
    many are needed would make the host wait for it.
    """
    vocab = rows.shape[1]
    top_p = limits.there(limits.column)
    confidence = rows.softmax(dim=-1).amax(dim=-1, keepdim=True).double()
    least = torch.empty_like(confidence, dtype=torch.float32)  # ``[n, 1]``, logit of the last token kept
    count = torch.empty_like(confidence, dtype=torch.int64)  # ``[n, 1]``, tokens kept
    pending = torch.arange(rows.shape[0], device=rows.device)
    candidates = vocab if at_once(rows.device) else _TOP_P_FIRST_CANDIDATES
    while pending.numel():
        undecided = rows if pending.numel() == rows.shape[0] else rows[pending]
        best = undecided.topk(min(candidates, vocab), dim=-1).values
        # exp(logit - largest) * (probability of the largest) is each candidate's probability, without a full sort.
        mass = ((best - best[:, :1]).exp() * confidence[pending]).cumsum(dim=-1)
        kept = (mass < top_p[pending]).sum(dim=-1, keepdim=True)  # number of tokens before the one that reaches top_p
        least[pending], count[pending] = best.gather(1, kept.clamp_max(best.shape[1] - 1)), kept + 1
        if candidates >= vocab:
            break
        # Rows whose candidates do not reach top_p are repeated with more of them.
        pending = pending[kept[:, 0] == best.shape[1]]
        candidates *= _TOP_P_GROWTH
    _keep_best(rows, least, count)


def _min_p(rows: Tensor, min_p: _Limits) -> None:
    least = rows.amax(dim=-1, keepdim=True) + min_p.there(min_p.column.log().float())
    _keep_best(rows, least, min_p.there(torch.where(min_p.column < 1.0, rows.shape[1], 1)))


# Edits of sampled rows: by parameter, in the order of application.
_SHAPES: Mapping[str, Callable[[Tensor, _Limits], None]] = {
    "temperature": _scale,
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
}
_NEUTRAL = SamplingParams()  # changes nothing


def _keep_best(rows: Tensor, least: Tensor, most: Tensor) -> None:
    """Set logits to -inf but for those from ``least`` on, of which ``most`` stay: of those equal to it the lowest ids.

    ``rows`` ``[n, vocab]`` and ``least`` ``[n, 1]`` are float32, ``most`` ``[n, 1]`` int64: fewer logits are larger.
    """
    if at_once(rows.device):
        above, tied = rows > least, rows == least
        tied &= tied.cumsum(dim=-1) <= most - above.sum(dim=-1, keepdim=True)
        rows.masked_fill_(~(above | tied), _REMOVED)
        return
    # threshold_ also removes what equals its limit, so that is one float lower. On a CPU it takes a fortieth of the
    # time of masked_fill_.
    removed = least.nextafter(torch.full_like(least, _REMOVED))
    limits = zip(removed.flatten().tolist(), least.flatten().tolist(), most.flatten().tolist(), strict=True)
    for row, (limit, last, places) in zip(rows, limits, strict=True):
        torch.threshold_(row, limit, _REMOVED)
        on_host = row.detach().numpy()
        if (surplus := np.count_nonzero(on_host >= last) - places) > 0:
            on_host[np.flatnonzero(on_host == last)[-surplus:]] = _REMOVED
