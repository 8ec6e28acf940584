"""The ratio rule where the target's probabilities are on a device of their own: read twice, whatever is in the batch.

First the target's probabilities of all tokens that drafts name, and what mass the others have together. With these the
host accepts and rejects by the same float64 arithmetic as anywhere (``outrider.verification.tree``): tokens that a
draft does not name lose the same share of their probability in every residual. What remains behind a rejection is put
together on the device and drawn from there, all blocks' at once; only rows that devices are to draw from themselves
come to the host, for they are sent to them.
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
    """What blocks come to, but for what only the device knows.

    Attributes:
        outlines: of each block; a token after of ``-1 - i`` is the i-th of ``drawn``. A block with a deferral names the
            one it is if no other is possible.
        drawn: ``[n]`` int64, on the device; None: nothing is open.
        decisions: to be called when everything was read.
    """

    outlines: Sequence[BlockDecision]
    drawn: Tensor | None
    decisions: Callable[[], Sequence[BlockDecision]]


@dataclass(slots=True)
class _RatioRequest:
    """One block: what is known of it, and where it stands."""

    block: RatioBlock
    start: int  # its first row
    rows: DraftRows
    halt: Halt | None = None
    masses: dict[int, float] | None = None  # by row, of the tokens that the draft does not name
    drawn: int = -1  # which of the tokens that the device knows is its correction
    row: Fetched | None = None  # what a deferred correction is drawn from


def ask_ratio(
    target_probs: Tensor, blocks: Sequence[RatioBlock], choices: Tensor, first: Readback
) -> Callable[[Readback], Drawing]:
    """``verify_ratio`` in two readings.

    Args:
        target_probs: as there.
        blocks: as there.
        choices: ``[R]`` on the same device.
        first: is asked for what accepts and rejects.

    Returns:
        To be called when that was read: it asks the second reading for what follows.
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
    probs = first.ask(target_probs[at, token_ids])
    masses = first.ask(_other_masses(target_probs, [ids for some in named for ids in some]))
    chosen = first.ask(choices)

    def proceed(second: Readback) -> Drawing:
        values, others, ids = probs(), masses().tolist(), chosen().tolist()
        ends = list(accumulate(part.shape[1] for part in drafted))
        firsts = [values[end - part.shape[1] : end] for end, part in zip(ends, drafted, strict=True)]
        at, place = ends[-1] if ends else 0, 0
        for one, own, some in zip(asked, firsts, named, strict=True):
            known: dict[int, Probs] = {}
            for pair in some:
                end = at + pair.shape[1]
                known[int(pair[0, 0]) - one.start] = np.append(values[at:end].astype(np.float64), [others[place], 0.0])
                at, place = end, place + 1
            one.halt = _halt(one, rounded(own, one.block.deferral), known)
            one.masses = {row: float(probs[-2]) for row, probs in known.items()}
        drawn, likeliest = _corrections(target_probs, asked), list[Tensor]()
        corrections = second.ask(drawn)
        for one in asked:
            if one.halt is not None and one.halt.rejected and one.block.deferral is not None:
                row = target_probs[one.start + one.halt.row]
                one.row, one.drawn = second.ask(row), drawn.shape[0] + len(likeliest)
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
    """``[2, K]``: the row that predicts each node, and the node's token."""
    block = one.block
    behind = range(len(block.draft)) if block.parents is None else (1 + parent for parent in block.parents)
    return np.array([[one.start + row for row in behind], block.draft], dtype=np.int64).reshape(2, -1)


def _named(one: _RatioRequest) -> list[IntRow]:
    """``[2, k]`` for each row that a sparse draft was drawn at: the row, and the tokens named there."""
    if not isinstance(one.rows, CompactRows):
        return []
    found = [(one.start + row, one.rows.token_ids(row)) for row in one.rows.rows]
    return [np.stack([np.full(len(token_ids), row), token_ids]) for row, token_ids in found]


def _other_masses(target_probs: Tensor, named: Sequence[IntRow]) -> Tensor:
    """``[n]`` float64: what the tokens that are not named have together. No difference of sums: that would cancel."""
    if not named:
        return torch.empty(0, dtype=torch.float64, device=target_probs.device)
    others = target_probs[index_tensor([int(pair[0, 0]) for pair in named], target_probs.device)]
    of_row = np.repeat(np.arange(len(named)), [pair.shape[1] for pair in named])
    index = np.stack([of_row, np.concatenate([pair[1] for pair in named])])
    at, token_ids = on_device(index, target_probs.device)
    others[at, token_ids] = 0.0
    return others.sum(dim=-1, dtype=torch.float64)


def _halt(one: _RatioRequest, first_probs: FloatRow, known: dict[int, Probs]) -> Halt:
    """Where a block ends; nothing has to be fetched for that."""
    block = one.block
    if not block.draft and block.deferral is not None and not block.bonus:
        return Halt((), 0, rejected=True)
    # A chain's first rejection ends it, and the device has the row.
    steps = steps_of(block, first_probs, one.rows, deferred=not known)
    try:
        row = next(steps)
        while True:
            row = steps.send(known[row])
    except StopIteration as done:
        halt: Halt = done.value
        return halt


def _corrections(target_probs: Tensor, asked: Sequence[_RatioRequest]) -> Tensor:
    """``[n]`` int64: a token for each block that rejected one and whose device draws none; sets their ``drawn``."""
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
        target = rest[at]
        left = (target - on_device(np.stack([probs for _, probs in dense]), device)).clamp_min_(0.0)
        rest[at] = torch.where(left.sum(dim=-1, keepdim=True) > 0.0, left, target)
    return _draws(rest, on_device(np.array(numbers)[:, None], device))


def _draws(probs: Tensor, numbers: Tensor) -> Tensor:
    """``distributions.draw`` of each row. A device may sum in another order, and must not step where nothing is."""
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
