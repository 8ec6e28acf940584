"""The ratio rule with target probabilities on an accelerator: two device reads, whatever is in the batch.

The first read brings the target's probabilities of all tokens that drafts name, and the total mass of the others. With
these the host accepts and rejects by the same float64 arithmetic as everywhere (``outrider.verification.tree``). Only
the mass is needed of unnamed tokens: the draft gives them probability 0, so all residuals scale them by one factor.
The residuals of rejected blocks are then assembled on the device and drawn from there, all blocks at once. Only rows
from which devices draw corrections themselves are copied to the host, since they are sent to them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from outrider.contracts.exchanged import DenseDraft, FloatRow, IntRow, SparseDraft
from outrider.sampling.device_tensors import Fetched, Readback, index_tensor, on_device
from outrider.sampling.distributions import Probs
from outrider.verification.decision import BlockDecision
from outrider.verification.draft_rows import CompactRows, DraftRows
from outrider.verification.ratio_block import RatioBlock, defer, residual_uniform, rounded, rows_of, steps_of
from outrider.verification.tree import Halt


@dataclass(frozen=True, slots=True)
class Drawing:
    """Decisions of blocks, except for tokens that are drawn on the device and not read yet."""

    # of each block; a ``token_after`` of ``-1 - i`` is the i-th of ``drawn``. For a block with a deferral that is the
    # row's most probable token: its correction, if the row has no other.
    outlines: Sequence[BlockDecision]
    drawn: Tensor | None  # ``[n]`` int64, on the device; None: nothing was drawn there
    decisions: Callable[[], Sequence[BlockDecision]]  # call it after the second read


@dataclass(slots=True)
class _RatioRequest:
    block: RatioBlock
    start: int  # its first row
    rows: DraftRows
    halt: Halt | None = None
    masses: dict[int, float] | None = None  # by row, of the tokens that the draft does not name
    drawn: int = -1  # index of its correction in ``Drawing.drawn``; -1: none
    row: Fetched | None = None  # the row that a deferred correction is drawn from


def launch_ratio(
    target_probs: Tensor, blocks: Sequence[RatioBlock], choices: Tensor, first: Readback
) -> Callable[[Readback], Drawing]:
    """Compute ``verify_ratio`` in two device reads; ``first`` brings what acceptance needs.

    Return a function to call after the first read; it adds corrections and rows to the second one.
    """
    vocab, device = target_probs.shape[1], target_probs.device
    starts = [0, *accumulate(map(rows_of, blocks))]
    asked = [
        _RatioRequest(block, start, _draft_rows(block, vocab)) for block, start in zip(blocks, starts, strict=False)
    ]
    drafted = [_drafted(one) for one in asked]
    named = [_named(one) for one in asked]
    nothing = np.zeros((2, 0), dtype=np.int64)
    pairs = np.concatenate([nothing, *drafted, *(ids for some in named for ids in some)], axis=1)
    at, token_ids = on_device(pairs, device)
    probs = first.add(target_probs[at, token_ids])
    masses = first.add(_other_masses(target_probs, [ids for some in named for ids in some]))
    chosen = first.add(choices)

    def proceed(second: Readback) -> Drawing:
        values, others, ids = probs(), masses().tolist(), chosen().tolist()
        _accept(asked, drafted, named, values, others)
        drawn, likeliest = _corrections(target_probs, asked), list[Tensor]()
        corrections = second.add(drawn)
        for one in asked:
            if one.halt is not None and one.halt.rejected and one.block.deferral is not None:
                row = target_probs[one.start + one.halt.row]
                one.row, one.drawn = second.add(row), drawn.shape[0] + len(likeliest)
                likeliest.append(row.argmax(dim=-1, keepdim=True))
        outlines = [_outline(one, ids) for one in asked]
        return Drawing(
            outlines,
            torch.cat([drawn, *likeliest]),
            lambda: [_decision(one, outline, corrections()) for one, outline in zip(asked, outlines, strict=True)],
        )

    return proceed


def _draft_rows(block: RatioBlock, vocab: int) -> DraftRows:
    compact = isinstance(block.distribution, SparseDraft) and block.deferral is None
    return (CompactRows if compact else DraftRows)(block.distribution, block.shape.children, vocab)


def _drafted(one: _RatioRequest) -> IntRow:
    """Return ``[2, K]``: the row that predicts each node, and the node's token."""
    block = one.block
    behind = range(len(block.draft)) if block.parents is None else (1 + parent for parent in block.parents)
    return np.array([[one.start + row for row in behind], block.draft], dtype=np.int64).reshape(2, -1)


def _named(one: _RatioRequest) -> list[IntRow]:
    """Return ``[2, k]`` for each row that a sparse draft was drawn at: the row, and the tokens named there."""
    if not isinstance(one.rows, CompactRows):
        return []
    found = [(one.start + row, one.rows.token_ids(row)) for row in one.rows.rows]
    return [np.stack([np.full(len(token_ids), row), token_ids]) for row, token_ids in found]


def _other_masses(target_probs: Tensor, named: Sequence[IntRow]) -> Tensor:
    """Return ``[n]`` float64 masses of unnamed tokens. Summed directly: ``1 - named`` would cancel."""
    if not named:
        return torch.empty(0, dtype=torch.float64, device=target_probs.device)
    others = target_probs[index_tensor([int(pair[0, 0]) for pair in named], target_probs.device)]
    of_row = np.repeat(np.arange(len(named)), [pair.shape[1] for pair in named])
    index = np.stack([of_row, np.concatenate([pair[1] for pair in named])])
    at, token_ids = on_device(index, target_probs.device)
    others[at, token_ids] = 0.0
    return others.sum(dim=-1, dtype=torch.float64)


def _accept(
    asked: Sequence[_RatioRequest],
    drafted: Sequence[IntRow],
    named: Sequence[Sequence[IntRow]],
    values: FloatRow,
    others: Sequence[float],
) -> None:
    """Set ``halt`` and ``masses`` of each block by the first read: probabilities of pairs, and of unnamed tokens."""
    ends = list(accumulate(part.shape[1] for part in drafted))
    firsts = [values[end - part.shape[1] : end] for end, part in zip(ends, drafted, strict=True)]
    at, place = ends[-1] if ends else 0, 0
    for one, own, some in zip(asked, firsts, named, strict=True):
        known: dict[int, Probs] = {}
        for pair in some:
            end = at + pair.shape[1]
            # The layout of ``CompactRows``: named tokens, then all others' mass, then a 0.
            known[int(pair[0, 0]) - one.start] = np.append(values[at:end].astype(np.float64), [others[place], 0.0])
            at, place = end, place + 1
        one.halt = _halt(one, rounded(own, one.block.deferral), known)
        one.masses = {row: float(probs[-2]) for row, probs in known.items()}


def _halt(one: _RatioRequest, first_probs: FloatRow, known: dict[int, Probs]) -> Halt:
    """Accept along the block with the values of the first read; no other rows are needed."""
    block = one.block
    if not block.draft and block.deferral is not None and not block.bonus:
        return Halt((), 0, rejected=True)
    # With scalars or dense rows ``known`` is empty: these are chains, which end at their first rejection.
    steps = steps_of(block, first_probs, one.rows, deferred=not known)
    try:
        row = next(steps)
        while True:
            row = steps.send(known[row])
    except StopIteration as done:
        halt: Halt = done.value
        return halt


def _corrections(target_probs: Tensor, asked: Sequence[_RatioRequest]) -> Tensor:
    """Draw ``[n]`` int64 corrections, one per block with a rejection and no deferral; set ``drawn`` of each."""
    device = target_probs.device
    drawing = [one for one in asked if one.halt is not None and one.halt.rejected and one.block.deferral is None]
    if not drawing:
        return torch.empty(0, dtype=torch.int64, device=device)
    places, values, scales, dense = list[IntRow](), list[Probs](), list[float](), list[tuple[int, Probs]]()
    rows, numbers = list[int](), list[float]()
    for index, one in enumerate(drawing):
        block, halt = one.block, one.halt
        assert halt is not None, "all are"
        one.drawn = index
        rows.append(one.start + halt.row)
        numbers.append(residual_uniform(block, halt))
        if isinstance(block.distribution, DenseDraft):
            scales.append(1.0)
            dense.append((index, one.rows.dense(halt.row)))
            continue
        assert isinstance(one.rows, CompactRows), "scalars are deferred"
        assert halt.remaining is not None, "its rows are known"
        assert one.masses is not None, "its rows are known"
        mass = one.masses[halt.row]
        # What the residuals left of the unnamed mass: one factor for the probability of each of its tokens.
        scales.append(float(halt.remaining[-2]) / mass if mass > 0.0 else 0.0)
        places.append(index * target_probs.shape[1] + one.rows.token_ids(halt.row))
        values.append(halt.remaining[:-2])
    rest = target_probs[index_tensor(rows, device)].double()
    rest *= on_device(np.array(scales)[:, None], device)
    if places:
        at, named = (on_device(np.concatenate(parts), device) for parts in (places, values))
        rest.view(-1).index_copy_(0, at, named)
    if dense:
        at = index_tensor([index for index, _ in dense], device)
        # Dense drafts are chains, so one rejection: max(0, p - q), or p where nothing is left by rounding.
        target = rest[at]
        left = (target - on_device(np.stack([probs for _, probs in dense]), device)).clamp_min_(0.0)
        rest[at] = torch.where(left.sum(dim=-1, keepdim=True) > 0.0, left, target)
    return _draws(rest, on_device(np.array(numbers)[:, None], device))


def _draws(probs: Tensor, numbers: Tensor) -> Tensor:
    """Draw from each row by inversion, as ``distributions.draw``.

    An accelerator's cumulative sum may decrease, or grow at tokens of probability 0, by rounding. Sums there are
    replaced by the largest before them, so that such a token is never drawn.
    """
    sums = probs.cumsum(dim=-1).masked_fill_(probs <= 0.0, 0.0).cummax(dim=-1).values
    total = sums[:, -1:].contiguous()
    drawn = torch.searchsorted(sums, numbers * total, right=True)
    return torch.minimum(drawn, torch.searchsorted(sums, total))[:, 0]


def _outline(one: _RatioRequest, choices: Sequence[int]) -> BlockDecision:
    halt = one.halt
    assert halt is not None, "it was read"
    if halt.rejected:
        return BlockDecision(halt.path, -1 - one.drawn)
    return BlockDecision(halt.path, choices[one.start + halt.row] if one.block.bonus else None)


def _decision(one: _RatioRequest, outline: BlockDecision, corrections: IntRow) -> BlockDecision:
    if one.drawn < 0:
        return outline
    if one.row is not None and one.block.deferral is not None:
        return defer(one.block, one.block.deferral, outline.path, one.row())
    return BlockDecision(outline.path, int(corrections[one.drawn]))
