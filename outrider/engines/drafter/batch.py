"""Drawing the next layer of several blocks from the logits of one forward pass."""

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.engines.drafter.job import DraftedGeneration, DraftingJob
from outrider.protocols.fixed_point import fixed_point_row
from outrider.protocols.protocol import DrawnRow
from outrider.sampling.choosing import choose_tokens
from outrider.sampling.logits import RowGroup, adjust_logits

Drawing = tuple[DraftedGeneration, DraftingJob]


def draw_batch(drawing: Sequence[Drawing], logits: Tensor) -> list[list[DrawnRow]]:
    """One row for each growing node of each block; that of a correction says its fixed-point row and no token.

    Args:
        drawing: blocks, each with as many rows of ``logits`` as it has growing nodes, in order.
        logits: ``[R, vocab]``, the draft model's own.
    """
    groups = [_row_groups(generation, job) for generation, job in drawing]
    plain = [i for i, (generation, job) in enumerate(drawing) if _is_plain(generation, job)]
    others = sorted(set(range(len(drawing))) - set(plain))
    drawn: dict[int, list[DrawnRow]] = {}
    if plain:
        tokens = iter(choose_tokens(*_picked(logits, groups, plain)).tolist())
        drawn |= {i: [DrawnRow((next(tokens),)) for _ in groups[i]] for i in plain}
    if others:
        adjusted = adjust_logits(*_picked(logits, groups, others)).detach().cpu().numpy()
        first = 0
        for i in others:
            generation, job = drawing[i]
            rows = adjusted[first : first + len(groups[i])]
            first += len(rows)
            if job.correcting:
                drawn[i] = [DrawnRow((), numerators=fixed_point_row(rows[0], generation.terms.wire, generation.params))]
            else:
                drawn[i] = job.protocol.draw(rows, generation.next_layer(job))
    return [drawn[i] for i in range(len(drawing))]


def _is_plain(generation: DraftedGeneration, job: DraftingJob) -> bool:
    """Whether the target's own sampler draws one token from each row."""
    return job.protocol.draws_as_target and not job.correcting and generation.next_layer(job).children == 1


def _row_groups(generation: DraftedGeneration, job: DraftingJob) -> list[RowGroup]:
    position = len(generation.token_ids) + job.depth
    return [
        RowGroup(generation.params, position, generation.counts_at(node), (), 1) for node in generation.tree.growing
    ]


def _picked(
    logits: Tensor, groups: Sequence[Sequence[RowGroup]], chosen: Sequence[int]
) -> tuple[Tensor, list[RowGroup]]:
    """The rows of some blocks, and their groups."""
    picked = [group for i in chosen for group in groups[i]]
    if len(chosen) == len(groups):
        return logits, picked
    owners = [i for i, rows in enumerate(groups) for _ in rows]
    wanted = set(chosen)
    index = [row for row, owner in enumerate(owners) if owner in wanted]
    return logits[torch.tensor(index, device=logits.device)], picked
