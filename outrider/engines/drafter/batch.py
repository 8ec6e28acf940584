"""Draw the next layer of several blocks from the logits of one forward pass.

The stop rule of a chain decides on a row, rounded as it will be sent, before a token is drawn from it: a decision that
depended on the drawn token would change the distribution of the draft.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from outrider.contracts.drafting import Child
from outrider.drafting.features import DraftFeatures, LazyFeatures
from outrider.drafting.stops import StopDecision
from outrider.engines.drafter.job import DraftedGeneration, DraftingJob
from outrider.protocols.fixed_point import fixed_point_row
from outrider.protocols.protocol import DraftRow, DrawnRow
from outrider.sampling.choosing import TokenColumns, choose_tokens
from outrider.sampling.device_tensors import Readback, at_once, index_tensor
from outrider.sampling.distributions import Probs
from outrider.sampling.logits import adjust_logits
from outrider.sampling.row_groups import RowGroup

Drawing = tuple[DraftedGeneration, DraftingJob]


@dataclass(frozen=True, slots=True)
class HeadRows:
    logits: Tensor  # ``[R, vocab]``, or ``[R, n]`` of the tokens that the model proposes
    columns: TokenColumns | None  # these tokens; None: all

    def of(self, rows: Sequence[int]) -> "HeadRows":
        """Return some of the rows; itself, if these are all."""
        if len(rows) == len(self.logits):
            return self
        return replace(self, logits=self.logits[index_tensor(rows, self.logits.device)])

    def whole(self) -> Tensor:
        """Return ``[R, vocab]``, -inf for tokens that the model does not propose."""
        if self.columns is None:
            return self.logits
        spread = self.logits.new_full((len(self.logits), self.columns.vocab_size), float("-inf"))
        spread[:, self.columns.token_ids] = self.logits
        return spread


@dataclass(frozen=True, slots=True)
class Drawn:
    """Next layer of one block."""

    # one for each growing node; none if the block stops before them. A correction's row has no token, only its
    # fixed-point numerators.
    rows: list[DrawnRow]
    step: StopDecision = StopDecision.DRAW  # the stop rule's decision
    # of a dynamic tree, in place of rows: the possible children of each growing node
    children: Sequence[Sequence[Child]] = ()


_STOPPED = Drawn([], StopDecision.STOP)


def launch_batch(drawing: Sequence[Drawing], rows: HeadRows, readback: Readback) -> Callable[[], list[Drawn]]:
    """Ask for the next layer of each block; it comes once ``readback`` is read, the only wait for the device."""
    groups = [_row_groups(generation, job) for generation, job in drawing]
    firsts = [0, *accumulate(map(len, groups))]
    plain = [i for i, (generation, job) in enumerate(drawing) if _is_plain(generation, job)]
    naming = [i for i in plain if any(group.names_tokens for group in groups[i])]
    others = [i for i in range(len(drawing)) if i not in plain]
    asked: list[tuple[list[int], Callable[[], list[Drawn]]]] = []
    for blocks in ([i for i in plain if i not in naming], naming, others):
        if not blocks:
            continue
        own = rows.of([row for i in blocks for row in range(firsts[i], firsts[i + 1])])
        its_blocks, its_groups = [drawing[i] for i in blocks], [groups[i] for i in blocks]
        launch = _launch_by_protocol if blocks is others else _launch_as_target
        asked.append((blocks, launch(its_blocks, own, its_groups, readback)))

    def drawn() -> list[Drawn]:
        found: dict[int, Drawn] = {}
        for blocks, answers in asked:
            found |= zip(blocks, answers(), strict=True)
        return [found[i] for i in range(len(drawing))]

    return drawn


def _launch_as_target(
    drawing: Sequence[Drawing], rows: HeadRows, groups: Sequence[list[RowGroup]], readback: Readback
) -> Callable[[], list[Drawn]]:
    """Ask for blocks whose rows are drawn with the target's own sampler, one token each.

    A CPU draws only from rows of blocks that go on. An accelerator draws from all, before the decisions are known.
    """
    starts = [0, *accumulate(map(len, groups))]
    asking = [i for i, (_, job) in enumerate(drawing) if job.rule.asks and job.draws_chain]
    judged = _launch_adjusted(rows.of([starts[i] for i in asking]), [groups[i][0] for i in asking], readback)
    noted = [i for i, (_, job) in enumerate(drawing) if job.keeps_features and job.draws_chain and not job.rule.asks]
    late = readback.add(rows.of([starts[i] for i in noted]).logits.float()) if noted else None
    every = [group for its_groups in groups for group in its_groups]
    chosen = readback.add(_chosen(rows, every)) if at_once(rows.logits.device) else None

    def drawn() -> list[Drawn]:
        steps = [StopDecision.DRAW] * len(drawing)
        for i, row in zip(asking, judged(), strict=True):
            steps[i] = _decide(drawing[i][1], DraftRow(row))
        for i, row in zip(noted, () if late is None else late(), strict=True):
            drawing[i][1].keep(_described_late(row, rows.columns, groups[i][0]))
        going = [i for i, step in enumerate(steps) if step is not StopDecision.STOP]
        if not going:
            return [_STOPPED] * len(drawing)
        at = [row for i in going for row in range(starts[i], starts[i + 1])]
        if chosen is None:
            token_ids = iter(_chosen(rows.of(at), [group for i in going for group in groups[i]]).tolist())
        else:
            token_ids = iter(chosen()[at].tolist())
        found = {i: Drawn([DrawnRow((next(token_ids),)) for _ in groups[i]], steps[i]) for i in going}
        return [found.get(i, _STOPPED) for i in range(len(drawing))]

    return drawn


def _launch_by_protocol(
    drawing: Sequence[Drawing], rows: HeadRows, groups: Sequence[list[RowGroup]], readback: Readback
) -> Callable[[], list[Drawn]]:
    whole = replace(rows, logits=rows.whole(), columns=None)
    adjusted = _launch_adjusted(whole, [group for its_groups in groups for group in its_groups], readback)
    starts = [0, *accumulate(map(len, groups))]

    def drawn() -> list[Drawn]:
        parts = np.split(adjusted(), starts[1:-1])
        return [_by_protocol(generation, job, own) for (generation, job), own in zip(drawing, parts, strict=True)]

    return drawn


def _by_protocol(generation: DraftedGeneration, job: DraftingJob, own: npt.NDArray[np.float32]) -> Drawn:
    if job.correcting:
        return Drawn([DrawnRow((), numerators=fixed_point_row(own[0], generation.terms.wire, generation.params))])
    layer = generation.next_layer(job)
    known = job.protocol.rows(own, layer)
    if job.growing is not None:
        return Drawn([], children=job.protocol.children(known, layer))
    if job.keeps_features and job.draws_chain and not job.rule.asks:
        job.keep(LazyFeatures(partial(_probs_of, known[0])))
    step = _decide(job, known[0]) if job.rule.asks and job.draws_chain else StopDecision.DRAW
    return _STOPPED if step is StopDecision.STOP else Drawn(job.protocol.draw(known, layer), step)


def _decide(job: DraftingJob, row: DraftRow) -> StopDecision:
    features, rule = DraftFeatures(row.probs), job.rule
    job.keep(features)
    job.rule = rule.after(features)
    return rule.step(features)


def _described_late(logits: npt.NDArray[np.float32], columns: TokenColumns | None, group: RowGroup) -> DraftFeatures:
    """Return features of a row that no rule uses now, computed when needed; until then only a copy of it is made."""
    own = torch.from_numpy(logits[None].copy())

    def probs() -> Probs:
        row, readback = HeadRows(own, None if columns is None else columns.on_host()), Readback()
        adjusted = _launch_adjusted(row, [group], readback)
        readback.read()
        return DraftRow(adjusted()[0]).probs

    return LazyFeatures(probs)


def _probs_of(row: DraftRow) -> Probs:
    return row.probs


def _launch_adjusted(
    rows: HeadRows, groups: Sequence[RowGroup], readback: Readback
) -> Callable[[], npt.NDArray[np.float32]]:
    """Ask for adjusted rows on the host, ``[R, vocab]`` or ``[R, n]``, each with a finite largest logit."""
    if not groups:
        return lambda: np.zeros((0, 0), dtype=np.float32)
    logits = rows.whole() if any(group.names_tokens for group in groups) else rows.logits
    fetched = readback.add(adjust_logits(logits, groups))

    def adjusted() -> npt.NDArray[np.float32]:
        found = fetched()
        removed = ~np.isfinite(found.max(axis=-1, initial=-np.inf))
        if removed.any():  # all tokens the drafter proposes are excluded: any draft is as good
            found = np.where(removed[:, None], np.float32(0.0), found)
        return found

    return adjusted


def _is_plain(generation: DraftedGeneration, job: DraftingJob) -> bool:
    """Whether each row is drawn with the target's own sampler, one token each."""
    if job.correcting or job.growing is not None:
        return False
    return job.protocol.draws_as_target and generation.next_layer(job).children == 1


def _row_groups(generation: DraftedGeneration, job: DraftingJob) -> list[RowGroup]:
    position = len(generation.token_ids) + job.depth
    return [
        RowGroup(generation.params, position, generation.counts_at(node), (), 1) for node in generation.tree.growing
    ]


def _chosen(rows: HeadRows, groups: Sequence[RowGroup]) -> Tensor:
    """Choose one token per row; rows are spread over the vocabulary only where a request names tokens."""
    if any(group.names_tokens for group in groups):
        return choose_tokens(rows.whole(), groups)
    return choose_tokens(rows.logits, groups, rows.columns)
