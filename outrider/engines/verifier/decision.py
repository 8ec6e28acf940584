"""Decide each block of a batch from the target's logits rows, under every acceptance rule, for chains and trees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

import numpy as np
import torch
from torch import Tensor

from outrider.contracts.exchanged import FloatRow
from outrider.contracts.requests import TokenLogprobs
from outrider.contracts.tree import node_paths
from outrider.contracts.verifying import AcceptanceRule
from outrider.engines.verifier.pass_rows import PassRows
from outrider.engines.verifier.two_steps import PendingSemanticRound, decide_open, wants_hidden
from outrider.engines.verifier.work import Work, score_rows
from outrider.sampling.choosing import choose_tokens, launch_choices, target_probs
from outrider.sampling.device_tensors import Readback, at_once, index_tensor
from outrider.sampling.row_groups import RowGroup
from outrider.verification.decision import BlockDecision
from outrider.verification.logprobs import LogprobsQuery, launch_logprobs
from outrider.verification.matching import match
from outrider.verification.ratio_at_once import Drawing, launch_ratio
from outrider.verification.ratio_block import rows_of
from outrider.verification.semantic import MismatchJudge, mismatches, semantic_decision
from outrider.verification.speculative import verify_ratio

_States = list[FloatRow | None]


@dataclass(frozen=True, slots=True, eq=False)
class RowDecision:
    block: BlockDecision
    logprobs: tuple[TokenLogprobs, ...]  # of the accepted tokens, then of the token after; empty unless asked for
    kept_row: Tensor | None = None  # ``[vocab]``, raw logits at the position of a deferred correction


def decide(
    computed: PassRows, judges: Mapping[str, MismatchJudge]
) -> tuple[PassRows, list[RowDecision | PendingSemanticRound]]:
    """Decide the blocks that a pass has computed, and score the tokens it was asked to score.

    Returns:
        The rows without those of blocks that are not finite, and the decision of each of their complete blocks.
    """
    readback, beside = Readback(), at_once(computed.logits.device)
    unsound = computed.launch_unsound(readback)
    if not beside:  # CPU: reading is free, and no rule has to handle NaN
        readback.read()
        if found := unsound():
            return decide(computed.without(found), judges)
        readback = Readback()
    add_scores = score_rows(computed.logits, computed.works, readback)
    decisions = launch_decisions(computed, judges, readback)
    readback.read()
    # An accelerator: soundness is read together with the decisions, which are discarded if a row is not sound.
    if beside and (found := unsound()):
        return decide(computed.without(found), judges)
    add_scores()
    return computed, decisions()


def launch_decisions(
    computed: PassRows, judges: Mapping[str, MismatchJudge], readback: Readback
) -> Callable[[], list[RowDecision | PendingSemanticRound]]:
    """Ask for the decisions of complete blocks; the returned function completes them once ``readback`` is read.

    An accelerator is waited for at most twice, whatever the number of blocks: for tests and choices, then for what
    depends on these (log-probabilities, corrections). Blocks with ``remaining_tokens`` get no decision.
    """
    works = computed.works
    rows, decided = _block_rows(computed.logits, works), [work for work in works if not work.remaining_tokens]
    starts = [0, *accumulate(rows_of(work.block) for work in decided)]
    states = _own_hidden(computed.hidden, works, readback)
    ratio = [index for index, work in enumerate(decided) if work.checked.ratio is not None]
    chosen = [index for index, work in enumerate(decided) if work.checked.ratio is None]
    by_choice = _by_choice(_rows_of_some(rows, chosen, starts), [decided[index] for index in chosen], readback)
    by_ratio = _by_ratio(_rows_of_some(rows, ratio, starts), [decided[index] for index in ratio], readback)

    def decisions() -> list[RowDecision | PendingSemanticRound]:
        after, own_states = Readback(), states()
        answers: dict[int, BlockDecision | PendingSemanticRound] = {}
        answers |= zip(chosen, by_choice([own_states[index] for index in chosen], judges), strict=True)
        drawing = by_ratio(after)
        outlines = {**answers, **dict(zip(ratio, drawing.outlines, strict=True))}
        logprobs = _logprobs(rows, decided, [outlines[index] for index in range(len(decided))], starts, drawing, after)
        after.read()
        answers |= zip(ratio, drawing.decisions(), strict=True)
        entries = zip(logprobs(), starts, strict=False)
        return [_with_rows(answers[index], own, rows, start) for index, (own, start) in enumerate(entries)]

    return decisions


def _with_rows(
    answer: BlockDecision | PendingSemanticRound, logprobs: tuple[TokenLogprobs, ...], rows: Tensor, start: int
) -> RowDecision | PendingSemanticRound:
    """Add log-probabilities, and the row that a device draws from; the block's rows begin at ``start``."""
    if isinstance(answer, PendingSemanticRound):
        return replace(answer, logprobs=logprobs)
    kept = rows[start + _row_behind(answer.path)].clone() if answer.deferred is not None else None
    known = answer.accepted_len + (answer.token_after is not None)  # a deferred correction's entry is cut off
    return RowDecision(answer, logprobs[:known], kept)


def _rows_of_some(rows: Tensor, indices: Sequence[int], starts: Sequence[int]) -> Tensor:
    """Return the rows of some of the decided blocks; ``rows`` itself if these are all."""
    if len(indices) == len(starts) - 1:
        return rows
    return rows[index_tensor([row for i in indices for row in range(starts[i], starts[i + 1])], rows.device)]


def _block_rows(logits: Tensor, works: Sequence[Work]) -> Tensor:
    """Return the rows that decide blocks, kept heads included, block after block; ``logits`` itself if it is these."""
    heads = [work.head for work in works if work.head is not None]
    if not heads and sum(work.own_rows for work in works) == logits.shape[0]:
        return logits
    wanted, known = [], logits.shape[0]
    for work, end in zip(works, accumulate(work.logit_rows for work in works), strict=True):
        if work.head is not None:
            wanted.append(known)
            known += 1
        wanted += range(end - work.own_rows, end)
    source = torch.cat([logits, torch.stack(heads).to(logits)]) if heads else logits
    return source[index_tensor(wanted, source.device)]


def _own_hidden(hidden: Tensor | None, works: Sequence[Work], readback: Readback) -> Callable[[], _States]:
    """Ask for ``[own rows, d]`` float32 hidden states of each complete block that wants them."""
    if not any(wants_hidden(work.block) for work in works):  # most passes
        none: _States = [None] * sum(not work.remaining_tokens for work in works)
        return lambda: none
    spans: list[range] = []
    for work, end in zip(works, accumulate(work.logit_rows for work in works), strict=True):
        if not work.remaining_tokens:
            spans.append(range(end - work.own_rows if wants_hidden(work.block) else end, end))
    wanted = [row for span in spans for row in span]
    if not wanted:
        return lambda: [None] * len(spans)
    assert hidden is not None, "a pass gives the hidden states its blocks want"
    fetched = readback.add(hidden[index_tensor(wanted, hidden.device)].float())

    def states() -> _States:
        parts = np.split(fetched(), list(accumulate(map(len, spans)))[:-1])
        return [part.copy() if len(part) else None for part in parts]  # copies: a view would keep all parts alive

    return states


def _by_choice(
    rows: Tensor, works: Sequence[Work], readback: Readback
) -> Callable[[_States, Mapping[str, MismatchJudge]], list[BlockDecision | PendingSemanticRound]]:
    """Decide greedy, shared-noise and semantic blocks: accept what the target chooses, or what judges accept."""
    groups = [_row_groups(work) for work in works]
    every = list(chain.from_iterable(groups))
    choices = launch_choices(rows, every, readback)

    def decisions(states: _States, judges: Mapping[str, MismatchJudge]) -> list[BlockDecision | PendingSemanticRound]:
        chosen, decided = iter(choices()), list[BlockDecision | PendingSemanticRound]()
        with_states: list[tuple[int, PendingSemanticRound, FloatRow]] = []  # their blocks carry the hidden states
        for work, hidden, its_groups in zip(works, states, groups, strict=True):
            block, own = work.block, [token_id for _ in its_groups for token_id in next(chosen)]
            if block.rule is AcceptanceRule.SEMANTIC:
                decided.append(_semantic(own, work, hidden))
                found = decided[-1]
                if isinstance(found, PendingSemanticRound) and block.hidden is not None:
                    with_states.append((len(decided) - 1, found, block.hidden[list(found.mismatches)]))
                continue
            # The row of a greedy target has one token, so its correction is never deferred: it is the answer.
            bonus = block.bonus or (not block.draft and block.deferral is not None)
            decided.append(match(own, block.draft, work.checked.shape, bonus=bonus))
        answers = decide_open([(open_round, hidden) for _, open_round, hidden in with_states], judges)
        for (index, _, _), answer in zip(with_states, answers, strict=True):
            decided[index] = answer
        return decided

    return decisions


def _semantic(choices: list[int], work: Work, hidden: FloatRow | None) -> BlockDecision | PendingSemanticRound:
    """Decide a semantic block, or leave it pending if a judge is needed. Tokens the grammar forbids are rejected."""
    block = work.block
    judged = work.generation.lawful(block.forced, block.draft)
    found = list(mismatches(choices, block.draft[:judged]))
    if not found:
        bonus = block.bonus or judged < len(block.draft)
        return semantic_decision(choices[: judged + bonus], block.draft[:judged], (), bonus=bonus)
    assert hidden is not None, "a mismatch has a row"
    return PendingSemanticRound(block, tuple(choices), tuple(found), hidden[found], judged)


def _by_ratio(rows: Tensor, works: Sequence[Work], readback: Readback) -> Callable[[Readback], Drawing]:
    """Decide blocks of the ratio rules. The target chooses only at rows that may give a bonus token."""
    if not works:
        return lambda _: Drawing((), None, tuple)
    probs = target_probs(rows, [group for work in works for group in _row_groups(work)])
    blocks = [work.checked.ratio for work in works if work.checked.ratio is not None]
    last: list[int] = []
    groups: list[RowGroup] = []
    for work, end in zip(works, accumulate(map(rows_of, blocks)), strict=True):
        if work.block.bonus:
            paths = work.checked.shape.leaf_paths()  # a bonus token follows a leaf
            last += [end - rows_of(work.block) + _row_behind(path) for path in paths]
            groups += [_path_group(work, path) for path in paths]
    choices = torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
    if last:
        index = index_tensor(last, rows.device)
        choices[index] = choose_tokens(rows[index], groups)
    if at_once(rows.device):
        return launch_ratio(probs, blocks, choices, readback)
    decided = verify_ratio(probs, blocks, choices)
    return lambda _: Drawing(decided, None, lambda: decided)


def _row_groups(work: Work) -> list[RowGroup]:
    """Return the sampling state of each of the block's rows: a chain as one group, a tree's rows by their paths."""
    block, generation = work.block, work.generation
    if block.parents is None:
        counts = generation.counts_behind(block.forced)
        rows = rows_of(block)
        allowed = generation.allowed((*block.forced, *block.draft), rows, len(block.forced))
        return [RowGroup(generation.params, work.checked.position, counts, block.draft, rows, allowed)]
    return [_path_group(work, path) for path in [(), *node_paths(block.parents)]]


def _path_group(work: Work, path: tuple[int, ...]) -> RowGroup:
    generation, tokens = work.generation, [work.block.draft[node] for node in path]
    behind = [*work.block.forced, *tokens]
    counts, allowed = generation.counts_behind(behind), generation.allowed(behind, 1, len(behind))
    return RowGroup(generation.params, work.checked.position + len(path), counts, (), 1, allowed)


def _row_behind(path: Sequence[int]) -> int:
    return 1 + path[-1] if path else 0


def _logprobs(
    rows: Tensor,
    works: Sequence[Work],
    outlines: Sequence[BlockDecision | PendingSemanticRound],
    starts: Sequence[int],
    drawing: Drawing,
    readback: Readback,
) -> Callable[[], list[tuple[TokenLogprobs, ...]]]:
    """Ask for log-probabilities of the tokens each block commits; of a pending round, of all it may commit."""
    if all(work.generation.logprobs is None for work in works):
        return lambda: [()] * len(works)
    queries: list[list[LogprobsQuery]] = []
    for work, outline, start in zip(works, outlines, starts, strict=False):
        top, asked = work.generation.logprobs, list[tuple[int, int]]()
        if top is not None:
            asked = outline.asked_tokens() if isinstance(outline, PendingSemanticRound) else _committed(work, outline)
        queries.append([LogprobsQuery(start + row, token_id, top or 0) for row, token_id in asked])
    answers = launch_logprobs(rows, [query for asked in queries for query in asked], readback, drawing.drawn)

    def entries() -> list[tuple[TokenLogprobs, ...]]:
        found = iter(answers())
        return [tuple(next(found) for _ in asked) for asked in queries]

    return entries


def _committed(work: Work, decision: BlockDecision) -> list[tuple[int, int]]:
    """Return row and token of each draft token and each next token that a decision commits."""
    after = [] if decision.token_after is None else [decision.token_after]
    tokens = [*(work.block.draft[node] for node in decision.path), *after]
    return list(zip([0, *(1 + node for node in decision.path)], tokens, strict=False))
