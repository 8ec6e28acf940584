"""Log-probabilities for users: of the target's raw distribution, before bias, penalties and temperature.

Only the rows asked for are computed, all of a batch at once. A row's values do not depend on the batch, and the order
of its alternatives is exact: by logit, then by id.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outrider.contracts.requests import TokenLogprobs
from outrider.sampling.device_tensors import Readback, at_once, index_tensor

_ROWS_AT_ONCE = 16  # on a CPU; copies of a whole prompt chunk's rows exceed the cache, which is five times slower
_NUMBERS_AT_ONCE = 1 << 26  # on an accelerator, numbers ranked at once, of eight bytes each

Answers = Callable[[], list[TokenLogprobs]]


@dataclass(frozen=True, slots=True)
class LogprobsQuery:
    row: int  # of the logits that predict it
    token_id: int  # the token; ``-1 - i`` is the i-th token of ``drawn``, which only the device knows yet
    top: int  # number of most probable tokens to report with it; at most the vocabulary


def launch_logprobs(
    logits: Tensor, queries: Sequence[LogprobsQuery], readback: Readback, drawn: Tensor | None = None
) -> Answers:
    """Answer each query with the next read of the device.

    Args:
        logits: ``[R, vocab]``, any float type, no padding behind the vocabulary; never written to.
        queries: Q of them, in any order.
        readback: the next read of the device.
        drawn: tokens known only there.

    Returns:
        Q entries in that order, natural logarithms.
    """
    if not queries:
        return list
    if not at_once(logits.device):
        slices = [queries[at : at + _ROWS_AT_ONCE] for at in range(0, len(queries), _ROWS_AT_ONCE)]
        entries = [entry for some in slices for entry in _answer(logits, some)]
        return lambda: entries
    count = max(1, _NUMBERS_AT_ONCE // logits.shape[1])
    parts = [_launch(logits, queries[at : at + count], readback, drawn) for at in range(0, len(queries), count)]
    return lambda: [entry for part in parts for entry in part()]


def _launch(logits: Tensor, queries: Sequence[LogprobsQuery], readback: Readback, drawn: Tensor | None) -> Answers:
    counts = [min(query.top, logits.shape[1]) for query in queries]
    places = index_tensor([*(query.row for query in queries), *(query.token_id for query in queries)], logits.device)
    row, token_id = places.view(2, -1)
    if drawn is not None and drawn.numel():
        token_id = torch.where(token_id < 0, drawn[(-1 - token_id).clamp_min(0)], token_id)
    rows = logits[row].float()  # [Q, vocab], a copy
    total = rows.logsumexp(dim=-1, keepdim=True).double()
    ids = torch.cat([token_id[:, None], _ranked(rows, max(counts))], dim=1)
    fetched_ids, fetched = readback.add(ids), readback.add(rows.gather(1, ids).double() - total)

    def answers() -> list[TokenLogprobs]:
        of_rows = zip(fetched_ids().tolist(), fetched().tolist(), counts, strict=True)
        return [
            TokenLogprobs(its_ids[0], values[0], tuple(zip(its_ids[1 : 1 + top], values[1 : 1 + top], strict=True)))
            for its_ids, values, top in of_rows
        ]

    return answers


def _ranked(rows: Tensor, count: int) -> Tensor:
    """Return ``[Q, count]`` ids of each row's largest logits, by logit, then by id.

    topk breaks ties arbitrarily, so it is given distinct int64 keys: a logit's bits, mapped to an order-preserving
    integer, times the vocabulary, plus the reversed id.
    """
    vocab = rows.shape[1]
    if count == 0:
        return torch.empty(rows.shape[0], 0, dtype=torch.int64, device=rows.device)
    bits = (rows + 0.0).view(torch.int32)  # the sum turns -0.0 into 0.0, which must be equal
    # Bits of negative floats descend as integers; flipping all but the sign makes integers ascend with floats.
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    behind = torch.arange(vocab - 1, -1, -1, device=rows.device)
    best = (ordered * vocab + behind).topk(count, dim=-1).values
    return vocab - 1 - best.remainder(vocab)


def _answer(logits: Tensor, queries: Sequence[LogprobsQuery]) -> list[TokenLogprobs]:
    rows = logits[torch.tensor([query.row for query in queries])].float()  # [Q, vocab], a copy
    # Subtracted in float64, different logits stay different: the order of the values is that of the logits.
    total = rows.logsumexp(dim=-1).double()  # [Q]
    token_ids = torch.tensor([query.token_id for query in queries])
    own = (rows.gather(1, token_ids[:, None])[:, 0].double() - total).tolist()
    tops = _tops(rows, total, [min(query.top, rows.shape[1]) for query in queries])
    return [TokenLogprobs(query.token_id, *rest) for query, *rest in zip(queries, own, tops, strict=True)]


def _tops(rows: Tensor, total: Tensor, counts: Sequence[int]) -> list[tuple[tuple[int, float], ...]]:
    """Return the ``counts[i]`` most probable tokens of row i with their log-probabilities."""
    most = max(counts)
    if most == 0:
        return [()] * len(counts)
    # topk breaks ties arbitrarily, so it only gives the smallest logit to keep; order is decided by logit and id.
    least = rows.topk(most, dim=-1).values[:, -1:]
    row, token_id = (rows >= least).nonzero(as_tuple=True)
    values = (rows[row, token_id].double() - total[row]).numpy()
    row_of, id_of = row.numpy(), token_id.numpy()
    order = np.lexsort((id_of, -values, row_of))
    first = np.searchsorted(row_of, np.arange(len(counts)))  # row_of is sorted: nonzero goes row by row
    chosen = [order[start : start + count] for start, count in zip(first, counts, strict=True)]
    return [tuple(zip(id_of[at].tolist(), values[at].tolist(), strict=True)) for at in chosen]
