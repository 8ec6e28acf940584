"""Log-probabilities as a user sees them: of the target's raw distribution, before bias, penalties and temperature.

Only rows somebody asks for are touched, all of a batch at once. A row's values never depend on its batch mates, and
the order of its alternatives is exact: by logit, then by id.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outrider.contracts.requests import TokenLogprobs

_ROWS_AT_ONCE = 16  # copies of a whole prompt chunk's rows would leave the cache: five times slower


@dataclass(frozen=True, slots=True)
class LogprobsQuery:
    """One token to report.

    Attributes:
        row: of the logits that predict it.
        token_id: the token that stands there.
        top: most probable tokens to report besides; at most the vocabulary.
    """

    row: int
    token_id: int
    top: int


def token_logprobs(logits: Tensor, queries: Sequence[LogprobsQuery]) -> list[TokenLogprobs]:
    """Answer each query.

    Args:
        logits: ``[R, vocab]``, any float type, no padding behind the vocabulary; never written to.
        queries: Q of them, in any order.

    Returns:
        Q entries in that order, natural logarithms.
    """
    slices = [queries[at : at + _ROWS_AT_ONCE] for at in range(0, len(queries), _ROWS_AT_ONCE)]
    return [entry for some in slices for entry in _answer(logits, some)]


def _answer(logits: Tensor, queries: Sequence[LogprobsQuery]) -> list[TokenLogprobs]:
    device = logits.device
    rows = logits[torch.tensor([query.row for query in queries], device=device)].float()  # [Q, vocab], a copy
    # Subtracted in float64, different logits stay different: the order of the values is that of the logits.
    total = rows.logsumexp(dim=-1).double()  # [Q]
    token_ids = torch.tensor([query.token_id for query in queries], device=device)
    own = (rows.gather(1, token_ids[:, None])[:, 0].double() - total).tolist()
    tops = _tops(rows, total, [min(query.top, rows.shape[1]) for query in queries])
    return [TokenLogprobs(query.token_id, *rest) for query, *rest in zip(queries, own, tops, strict=True)]


def _tops(rows: Tensor, total: Tensor, counts: Sequence[int]) -> list[tuple[tuple[int, float], ...]]:
    """The ``counts[i]`` most probable tokens of row i with their values."""
    most = max(counts)
    if most == 0:
        return [()] * len(counts)
    # topk breaks ties as it likes, so it only says how large a logit must be; who is in is decided by logit and id.
    least = rows.topk(most, dim=-1).values[:, -1:]
    row, token_id = (rows >= least).nonzero(as_tuple=True)
    values = (rows[row, token_id].double() - total[row]).cpu().numpy()
    row_of, id_of = row.cpu().numpy(), token_id.cpu().numpy()
    order = np.lexsort((id_of, -values, row_of))
    first = np.searchsorted(row_of, np.arange(len(counts)))  # row_of is sorted: nonzero goes row by row
    chosen = [order[start : start + count] for start, count in zip(first, counts, strict=True)]
    return [tuple(zip(id_of[at].tolist(), values[at].tolist(), strict=True)) for at in chosen]
