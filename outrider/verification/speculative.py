"""Verification by the ratio rule: chains and trees, corrections drawn here or by the device.

Accept a drafted token with probability min(1, p / q); on a rejection draw from norm(max(0, p - q)) (Leviathan et al.
2023, algorithm 1; WISP eq. 1, TSLT algorithm 8, DSSD algorithm 2, without their errata). Random numbers are functions
of (seed, absolute position, purpose): the token at position t is tested with ACCEPT at t and corrected with RESIDUAL
at t; a bonus token is the target's own choice by shared noise.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from outrider.contracts.errors import ShapeError, UnsupportedBlockError
from outrider.contracts.exchanged import (
    Deferral,
    DenseDraft,
    DraftDistribution,
    FloatField,
    FloatRow,
    ScalarDraft,
    SparseDraft,
)
from outrider.contracts.verifying import Block
from outrider.sampling.distributions import Probs, draw
from outrider.sampling.noise import Purpose, uniforms
from outrider.sampling.rounding import round_floats
from outrider.verification.correction import correction_source
from outrider.verification.decision import BlockDecision, DraftShape, shape_of
from outrider.verification.draft_rows import DraftRows
from outrider.verification.tree import walk


@dataclass(frozen=True, slots=True)
class RatioBlock:
    """One block that the ratio rule can decide: to make one is to check it. Fields as in ``contracts.verifying.Block``.

    Attributes:
        distinct: the siblings of a tree were drawn without replacement.
        seed: the request's.
        position: absolute position of the token row 0 predicts.
        shape: of the draft.
    """

    draft: tuple[int, ...]
    parents: tuple[int, ...] | None
    distribution: DraftDistribution
    distinct: bool
    bonus: bool
    deferral: Deferral | None
    seed: int
    position: int
    shape: DraftShape = field(init=False)

    def __post_init__(self) -> None:
        """Refuse what the rule cannot decide.

        Raises:
            UnsupportedBlockError: what was sent of the draft distribution does not allow what is asked for.
            ShapeError: the distribution's rows are not those of the draft; parents are no tree.
        """
        if (found := _undecidable(self)) is not None:
            raise UnsupportedBlockError(f"the ratio rule found {found}")
        nodes, sent = len(self.draft), self.distribution
        object.__setattr__(self, "shape", shape_of(nodes, self.parents))
        if sent is not None and nodes > 0:
            rows = sum(map(bool, self.shape.children)) if isinstance(sent, SparseDraft) else nodes
            found_rows = len(sent.numerators if isinstance(sent, ScalarDraft) else sent.logits)
            if found_rows != rows:
                raise ShapeError(f"a draft of {nodes} tokens needs {rows} draft rows, found {found_rows}")


def _undecidable(block: RatioBlock) -> str | None:
    """What of a block's form leaves the rule without an answer; None if nothing does."""
    sent, deferral, drafted, tree = block.distribution, block.deferral, bool(block.draft), block.parents is not None
    for wrong, found in (
        (drafted and sent is None, "no draft distribution; the rule needs what the draft was sampled from"),
        (tree and isinstance(sent, ScalarDraft | DenseDraft), "a tree without sparse rows; send one for each parent"),
        (
            drafted and isinstance(sent, ScalarDraft) and deferral is None,
            "scalars without a deferral; the residual of a rejection is known to the device alone",
        ),
        (tree and deferral is not None, "a tree with a deferral; corrections can be deferred for chains only"),
        (
            deferral is not None and deferral.row_field is FloatField.INT8,
            "an int8 target row; send it as fp32, fp16 or bf16",
        ),
    ):
        if wrong:
            return found
    return None


def rows_of(block: RatioBlock | Block) -> int:
    """Target rows that decide a block of K draft tokens.

    K + 1 for a tree, for a chain that wants a bonus token, and for a block without draft that asks for a correction's
    row; else K (a deferred correction needs no row besides those of the draft). True under every rule.
    """
    nodes = len(block.draft)
    asks_row = nodes == 0 and block.deferral is not None
    return nodes + (block.bonus or block.parents is not None or asks_row)


def verify_ratio(
    target_probs: Tensor, blocks: Sequence[RatioBlock], choices: Sequence[int] | Tensor
) -> list[BlockDecision]:
    """Decide blocks.

    The target's probabilities of the drafted tokens are fetched at once, then the rows of all blocks that rejected a
    token at once (a tree may need a row at each further depth).

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
    """``[K]`` for each block: the target's probability of each node's token at the row that predicts it."""
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
        _rounded(values[end - len(block.draft) : end], block.deferral) for block, end in zip(blocks, ends, strict=True)
    ]


def _fetch(target_probs: Tensor, rows: Sequence[int]) -> Sequence[FloatRow]:
    if not rows:
        return []
    fetched: FloatRow = target_probs[torch.tensor(rows, device=target_probs.device)].cpu().numpy()
    return list(fetched)


def _rounded(values: FloatRow, deferral: Deferral | None) -> FloatRow:
    """What the device is to compute with as well."""
    return values if deferral is None else round_floats(values, deferral.row_field)


def _decide(
    block: RatioBlock, first_probs: FloatRow, choices: Sequence[int], vocab_size: int
) -> Generator[int, FloatRow, BlockDecision]:
    """The decision; yields the target rows it needs (of this block's) and is sent them."""
    if not block.draft and block.deferral is not None and not block.bonus:
        return _defer(block, block.deferral, (), (yield 0))
    children = block.shape.children

    def accept_uniforms(depth: int, count: int) -> Probs:
        return uniforms(block.seed, block.position + depth, Purpose.ACCEPT, count)

    halt = yield from walk(
        block.draft,
        children,
        first_probs.tolist(),
        DraftRows(block.distribution, children, vocab_size),
        accept_uniforms,
        distinct=block.distinct,
        deferred=block.deferral is not None,
    )
    if not halt.rejected:
        return BlockDecision(halt.path, choices[halt.row] if block.bonus else None)
    if block.deferral is not None:
        return _defer(block, block.deferral, halt.path, (yield halt.row))
    assert halt.remaining is not None, "a rejection that is not deferred leaves a distribution"
    uniform = uniforms(block.seed, block.position + len(halt.path), Purpose.RESIDUAL, 1)[0]
    return BlockDecision(halt.path, draw(halt.remaining, float(uniform)))


def _defer(block: RatioBlock, deferral: Deferral, path: tuple[int, ...], target_row: FloatRow) -> BlockDecision:
    """What the device is to draw from, or its token if there is only one."""
    row = _rounded(target_row, deferral)
    possible = np.flatnonzero(row)
    if len(possible) == 1:
        return BlockDecision(path, int(possible[0]))
    return BlockDecision(path, None, correction_source(row, deferral, block.seed, block.position + len(path)))
