"""Log-probabilities of given tokens (a prompt's, or forced ones), gathered while their KV is computed.

A device draws a deferred correction itself and is not trusted. The first forced token of its block is therefore also
checked: its probability in the target's distribution must not be 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from outrider.contracts.requests import TokenLogprobs
from outrider.sampling.choosing import target_probs
from outrider.sampling.device_tensors import Readback, index_tensor
from outrider.sampling.row_groups import RowGroup
from outrider.verification.logprobs import LogprobsQuery, launch_logprobs


@dataclass(slots=True)
class TokenScores:
    """Log-probabilities of consecutive tokens, in order. They stay valid when the KV is evicted."""

    first: int  # position of the first token, >= 1
    token_ids: tuple[int, ...]
    top: int  # alternatives to report with each
    # sampling of the row that predicts the first token, if that token is to be checked
    must_be_possible: RowGroup | None = None
    impossible: bool = False  # set if the checked token's probability is 0
    entries: list[TokenLogprobs] = field(default_factory=list)  # of the leading tokens, as far as they are known

    @property
    def complete(self) -> bool:
        return len(self.entries) == len(self.token_ids)

    @property
    def next_row(self) -> int:
        """Position whose logits predict the first token without an entry."""
        return self.first - 1 + len(self.entries)

    def unscored(self, start: int, stop: int) -> range:
        """Return the positions of ``start .. stop - 1`` whose logits are needed. Call in order, without gaps."""
        positions = range(max(start, self.next_row), min(stop, self.first - 1 + len(self.token_ids)))
        assert not positions or positions.start == self.next_row, "positions to score were left out"
        return positions


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Rows of a pass that score tokens: row ``first_row + i`` predicts the i-th token without an entry."""

    scores: TokenScores
    first_row: int
    count: int


def score(logits: torch.Tensor, scored: Sequence[ScoredRows], readback: Readback) -> Callable[[], None]:
    """Ask for the log-probabilities of the tokens that rows of different ``TokenScores`` predict.

    Read ``readback`` before calling the returned function, which adds the entries. ``logits``: ``[R, vocab]``, raw.
    """
    queries: list[LogprobsQuery] = []
    for one in scored:
        done = len(one.scores.entries)
        tokens = one.scores.token_ids[done : done + one.count]
        queries += [LogprobsQuery(one.first_row + i, token_id, one.scores.top) for i, token_id in enumerate(tokens)]
    answers = launch_logprobs(logits, queries, readback)
    doubted = [(one, group) for one in scored if (group := _doubt(one)) is not None]
    probs = None
    if doubted:
        rows, token_ids = zip(*((one.first_row, one.scores.token_ids[0]) for one, _ in doubted), strict=True)
        at = index_tensor(rows, logits.device)
        of_rows = target_probs(logits[at], [group for _, group in doubted])
        probs = readback.add(of_rows.gather(1, index_tensor(token_ids, logits.device)[:, None])[:, 0])

    def add() -> None:
        for (one, _), prob in zip(doubted, [] if probs is None else probs().tolist(), strict=True):
            one.scores.impossible = not prob > 0.0  # true for NaN, too
        entries = iter(answers())
        for one in scored:
            one.scores.entries += [next(entries) for _ in range(one.count)]

    return add


def _doubt(one: ScoredRows) -> RowGroup | None:
    """Return the sampling of the first row if the token it predicts is to be checked in this pass."""
    return one.scores.must_be_possible if one.count and not one.scores.entries else None
