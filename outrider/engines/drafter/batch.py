"""Drawing the next layer of several blocks from the logits of one forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from outrider.engines.drafter.job import DraftedGeneration, DraftingJob
from outrider.protocols.fixed_point import fixed_point_row
from outrider.protocols.protocol import DrawnRow
from outrider.sampling.choosing import TokenColumns, choose_tokens
from outrider.sampling.logits import RowGroup, adjust_logits

Drawing = tuple[DraftedGeneration, DraftingJob]


@dataclass(frozen=True, slots=True)
class HeadRows:
    """Logits as a draft model's head gives them.

    Attributes:
        logits: ``[R, vocab]``, or ``[R, n]`` of the tokens it proposes.
        columns: which these are; None: all.
    """

    logits: Tensor
    columns: TokenColumns | None

    def of(self, rows: Sequence[int]) -> "HeadRows":
        """Some of the rows; itself, if these are all."""
        if len(rows) == len(self.logits):
            return self
        return replace(self, logits=self.logits[torch.tensor(rows, device=self.logits.device)])

    def whole(self) -> Tensor:
        """``[R, vocab]``, -inf for tokens it does not propose."""
        if self.columns is None:
            return self.logits
        spread = self.logits.new_full((len(self.logits), self.columns.vocab_size), float("-inf"))
        spread[:, self.columns.token_ids] = self.logits
        return spread


def draw_batch(drawing: Sequence[Drawing], rows: HeadRows) -> list[list[DrawnRow]]:
    """One row for each growing node of each block; that of a correction says its fixed-point row and no token.

    Args:
        drawing: blocks, each with as many rows as it has growing nodes, in order.
        rows: the draft model's own.
    """
    groups = [_row_groups(generation, job) for generation, job in drawing]
    firsts = [0, *accumulate(map(len, groups))]
    plain = [i for i, (generation, job) in enumerate(drawing) if _is_plain(generation, job)]
    naming = [i for i in plain if any(group.names_tokens for group in groups[i])]
    others = [i for i in range(len(drawing)) if i not in plain]
    drawn: dict[int, list[DrawnRow]] = {}
    for blocks in ([i for i in plain if i not in naming], naming, others):
        if not blocks:
            continue
        own = rows.of([row for i in blocks for row in range(firsts[i], firsts[i + 1])])
        its_groups = [group for i in blocks for group in groups[i]]
        if blocks is others:
            found = _drawn_by_protocol([drawing[i] for i in blocks], own.whole(), its_groups)
        else:
            tokens = iter(_chosen(own, its_groups).tolist())
            found = [[DrawnRow((next(tokens),)) for _ in groups[i]] for i in blocks]
        drawn |= zip(blocks, found, strict=True)
    return [drawn[i] for i in range(len(drawing))]


def _drawn_by_protocol(drawing: Sequence[Drawing], logits: Tensor, groups: Sequence[RowGroup]) -> list[list[DrawnRow]]:
    """Of blocks whose rows are drawn from as their protocols say; ``logits`` ``[R, vocab]``."""
    rows = adjust_logits(logits, groups).detach().cpu().numpy()
    removed = ~np.isfinite(rows.max(axis=-1, initial=-np.inf))
    if removed.any():  # nothing is left that the drafter proposes: anything is as good
        rows = np.where(removed[:, None], np.float32(0.0), rows)
    drawn: list[list[DrawnRow]] = []
    first = 0
    for generation, job in drawing:
        own = rows[first : first + len(generation.tree.growing)]
        first += len(own)
        if job.correcting:
            row = fixed_point_row(own[0], generation.terms.wire, generation.params)
            drawn.append([DrawnRow((), numerators=row)])
        else:
            layer = generation.next_layer(job)
            drawn.append(job.protocol.draw(job.protocol.rows(own, layer), layer))
    return drawn


def _is_plain(generation: DraftedGeneration, job: DraftingJob) -> bool:
    """Whether the target's own sampler draws one token from each row."""
    return job.protocol.draws_as_target and not job.correcting and generation.next_layer(job).children == 1


def _row_groups(generation: DraftedGeneration, job: DraftingJob) -> list[RowGroup]:
    position = len(generation.token_ids) + job.depth
    return [
        RowGroup(generation.params, position, generation.counts_at(node), (), 1) for node in generation.tree.growing
    ]


def _chosen(rows: HeadRows, groups: Sequence[RowGroup]) -> Tensor:
    """One token of each row; the whole vocabulary is laid out only where a request names tokens."""
    if any(group.names_tokens for group in groups):
        return choose_tokens(rows.whole(), groups)
    return choose_tokens(rows.logits, groups, rows.columns)
