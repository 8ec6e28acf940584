"""Verification by the ratio rule, for chains and trees, with corrections drawn here or by the device.

Accept a draft token with probability min(1, p / q); after a rejection draw from norm(max(0, p - q)) (Leviathan et al.
2023, algorithm 1; WISP eq. 1, TSLT algorithm 8, DSSD algorithm 2, without their errata). Random numbers are functions
of (seed, absolute position, purpose): the token at position t is tested with ACCEPT at t and corrected with RESIDUAL
at t. A bonus token is the target's own choice by shared noise.
"""

from collections.abc import Generator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from outrider.contracts.errors import ShapeError
from outrider.contracts.exchanged import FloatRow
from outrider.sampling.device_tensors import Readback, at_once
from outrider.sampling.distributions import draw
from outrider.verification.decision import BlockDecision
from outrider.verification.draft_rows import DraftRows
from outrider.verification.ratio_at_once import launch_ratio
from outrider.verification.ratio_block import RatioBlock, defer, residual_uniform, rounded, rows_of, steps_of


def verify_ratio(
    target_probs: Tensor, blocks: Sequence[RatioBlock], choices: Sequence[int] | Tensor
) -> list[BlockDecision]:
    """Decide blocks by the ratio rule.

    On a CPU, read the target's probabilities of the drafted tokens first, then whole rows of those blocks only that
    rejected a token. On an accelerator, use ``ratio_at_once``.

    Args:
        target_probs: ``[R, vocab]`` float32, any device; ``rows_of`` each block, in order.
        blocks: the blocks; each is decided as if it were alone.
        choices: ``[R]``, the target's own choice at each row by shared noise; only those of bonus tokens are looked at.
    """
    starts = [0, *accumulate(map(rows_of, blocks))]
    if not target_probs.shape[0] == len(choices) == starts[-1]:
        raise ShapeError(
            f"{len(blocks)} blocks need {starts[-1]} target rows and choices, "
            f"found {target_probs.shape[0]} and {len(choices)}"
        )
    # Two ways: at once takes 1.1 to 3.4 times as long on a CPU, row by row waits for an accelerator at each rejection.
    if at_once(target_probs.device):
        first, second = Readback(), Readback()
        proceed = launch_ratio(target_probs, blocks, torch.as_tensor(choices, dtype=torch.int64), first)
        first.read()
        drawing = proceed(second)
        second.read()
        return list(drawing.decisions())
    if isinstance(choices, Tensor):
        choices = choices.tolist() if any(block.bonus for block in blocks) else [0] * len(choices)
    first_probs = _first_probs(target_probs, blocks, starts)
    walks = [
        _decide(block, probs, choices[start : start + rows_of(block)], target_probs.shape[1])
        for block, probs, start in zip(blocks, first_probs, starts, strict=False)
    ]
    decisions: dict[int, BlockDecision] = {}
    answers: dict[int, FloatRow | None] = dict.fromkeys(range(len(blocks)))
    while answers:
        asked: dict[int, int] = {}
        for index, row in answers.items():
            try:
                asked[index] = starts[index] + (next(walks[index]) if row is None else walks[index].send(row))
            except StopIteration as done:
                decisions[index] = done.value
        fetched = _fetch(target_probs, list(asked.values()))
        answers = dict(zip(asked, fetched, strict=True))
    return [decisions[index] for index in range(len(blocks))]


def _first_probs(target_probs: Tensor, blocks: Sequence[RatioBlock], starts: Sequence[int]) -> list[FloatRow]:
    """Return ``[K]`` for each block: the target's probability of each node's token at the row that predicts it."""
    rows = [
        start + row
        for block, start in zip(blocks, starts, strict=False)
        for row in (range(len(block.draft)) if block.parents is None else (1 + parent for parent in block.parents))
    ]
    token_ids = [token_id for block in blocks for token_id in block.draft]
    index = torch.tensor([rows, token_ids], dtype=torch.int64, device=target_probs.device)
    values: FloatRow = target_probs[index[0], index[1]].cpu().numpy()
    ends = list(accumulate(len(block.draft) for block in blocks))
    return [
        rounded(values[end - len(block.draft) : end], block.deferral) for block, end in zip(blocks, ends, strict=True)
    ]


def _fetch(target_probs: Tensor, rows: Sequence[int]) -> Sequence[FloatRow]:
    if not rows:
        return []
    fetched: FloatRow = target_probs[torch.tensor(rows, device=target_probs.device)].cpu().numpy()
    return list(fetched)


def _decide(
    block: RatioBlock, first_probs: FloatRow, choices: Sequence[int], vocab_size: int
) -> Generator[int, FloatRow, BlockDecision]:
    """Decide one block; yields the indices of the target rows it needs, and is sent these rows."""
    if not block.draft and block.deferral is not None and not block.bonus:
        return defer(block, block.deferral, (), (yield 0))
    draft_rows = DraftRows(block.distribution, block.shape.children, vocab_size)
    halt = yield from steps_of(block, first_probs, draft_rows, deferred=block.deferral is not None)
    if not halt.rejected:
        return BlockDecision(halt.path, choices[halt.row] if block.bonus else None)
    if block.deferral is not None:
        return defer(block, block.deferral, halt.path, (yield halt.row))
    assert halt.remaining is not None, "a rejection that is not deferred leaves a distribution"
    return BlockDecision(halt.path, draw(halt.remaining, residual_uniform(block, halt)))
