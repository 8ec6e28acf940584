"""From the logits rows of a batch to the decision of each block, whatever its rule and shape."""

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
from outrider.sampling.choosing import ask_choices_along, choose_tokens, target_probs
from outrider.sampling.device_tensors import Readback, at_once, index_tensor
from outrider.sampling.logits import RowGroup
from outrider.verification.decision import BlockDecision
from outrider.verification.logprobs import LogprobsQuery, ask_logprobs
from outrider.verification.matching import match
from outrider.verification.ratio_at_once import Drawing, ask_ratio
from outrider.verification.ratio_block import rows_of
from outrider.verification.semantic import MismatchJudge, mismatches, semantic_decision
from outrider.verification.speculative import verify_ratio

_States = list[FloatRow | None]


@dataclass(frozen=True, slots=True, eq=False)
class RowDecision:
    """What the rows of one block say."""

    block: BlockDecision
    logprobs: tuple[TokenLogprobs, ...]  # of the accepted tokens, then of the token after; empty unless asked for
    kept_row: Tensor | None = None  # [vocab], raw logits at the position of a deferred correction


def decide(
    computed: PassRows, judges: Mapping[str, MismatchJudge]
) -> tuple[PassRows, list[RowDecision | PendingSemanticRound]]:
    """Decide what a pass has computed, and score what of it is to be scored.

    Returns:
        The rows of the blocks that were not left out because theirs are not finite, and the decision of each of these
        blocks that is complete.
    """
    readback, beside = Readback(), at_once(computed.logits.device)
    unsound = computed.ask_unsound(readback)
    if not beside:  # nothing is waited for, and no rule has to know what to make of a NaN
        readback.read()
        if found := unsound():
            return decide(computed.without(found), judges)
        readback = Readback()
    add_scores = score_rows(computed.logits, computed.works, readback)
    decisions = ask_decisions(computed, judges, readback)
    readback.read()
    if beside and (found := unsound()):
        return decide(computed.without(found), judges)
    add_scores()
    return computed, decisions()


def ask_decisions(
    computed: PassRows, judges: Mapping[str, MismatchJudge], readback: Readback
) -> Callable[[], list[RowDecision | PendingSemanticRound]]:
    """Decide the blocks that are complete, as far as what they brought allows, once ``readback`` is read.

    A device of its own is waited for twice at most, whatever the blocks are: for what they come to, and for what can
    only be asked then (log-probabilities, corrections).

    Args:
        computed: by the pass; blocks with ``remaining_tokens`` are left out of the answer.
        judges: of mismatches: all that blocks name.
        readback: what else is asked of the pass.
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
    """With log-probabilities, and the row that a device is to draw from; the block's rows begin at ``start``."""
    if isinstance(answer, PendingSemanticRound):
        return replace(answer, logprobs=logprobs)
    kept = rows[start + _row_behind(answer.path)].clone() if answer.deferred is not None else None
    known = answer.accepted_len + (answer.token_after is not None)  # none stands for a token not the only one
    return RowDecision(answer, logprobs[:known], kept)


def _rows_of_some(rows: Tensor, indices: Sequence[int], starts: Sequence[int]) -> Tensor:
    """Of all decided blocks' rows those of a few blocks; ``rows`` itself if these are all."""
    if len(indices) == len(starts) - 1:
        return rows
    return rows[index_tensor([row for i in indices for row in range(starts[i], starts[i + 1])], rows.device)]


def _block_rows(logits: Tensor, works: Sequence[Work]) -> Tensor:
    """Of all rows of ``works``, and the heads known before, those that decide blocks; ``logits`` itself if possible."""
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
    """``[own rows, d]`` of each complete block that wants hidden states."""
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
    fetched = readback.ask(hidden[index_tensor(wanted, hidden.device)].float())

    def states() -> _States:
        parts = np.split(fetched(), list(accumulate(map(len, spans)))[:-1])
        return [part.copy() if len(part) else None for part in parts]  # a copy each: they outlive one another

    return states


def _by_choice(
    rows: Tensor, works: Sequence[Work], readback: Readback
) -> Callable[[_States, Mapping[str, MismatchJudge]], list[BlockDecision | PendingSemanticRound]]:
    """Greedy, shared noise and semantic: accept what the target chooses, and what judges let pass."""
    groups = [_row_groups(work) for work in works]
    every = list(chain.from_iterable(groups))
    choices = ask_choices_along(rows, every, readback)

    def decisions(states: _States, judges: Mapping[str, MismatchJudge]) -> list[BlockDecision | PendingSemanticRound]:
        chosen, decided = iter(choices()), list[BlockDecision | PendingSemanticRound]()
        with_states: list[tuple[int, PendingSemanticRound, FloatRow]] = []  # those that nothing more is asked for
        for work, hidden, its_groups in zip(works, states, groups, strict=True):
            block, own = work.block, [token_id for _ in its_groups for token_id in next(chosen)]
            if block.rule is AcceptanceRule.SEMANTIC:
                decided.append(_semantic(own, work, hidden))
                found = decided[-1]
                if isinstance(found, PendingSemanticRound) and block.hidden is not None:
                    with_states.append((len(decided) - 1, found, block.hidden[list(found.mismatches)]))
                continue
            # A greedy target leaves a device nothing to draw: its row has one token, which is then the answer.
            bonus = block.bonus or (not block.draft and block.deferral is not None)
            decided.append(match(own, block.draft, work.checked.shape, bonus=bonus))
        answers = decide_open([(open_round, hidden) for _, open_round, hidden in with_states], judges)
        for (index, _, _), answer in zip(with_states, answers, strict=True):
            decided[index] = answer
        return decided

    return decisions


def _semantic(choices: list[int], work: Work, hidden: FloatRow | None) -> BlockDecision | PendingSemanticRound:
    """Decided if nothing is to be judged, else open. What the grammar forbids is rejected without being judged."""
    block = work.block
    judged = work.generation.lawful(block.forced, block.draft)
    found = list(mismatches(choices, block.draft[:judged]))
    if not found:
        bonus = block.bonus or judged < len(block.draft)
        return semantic_decision(choices[: judged + bonus], block.draft[:judged], (), bonus=bonus)
    assert hidden is not None, "a mismatch has a row"
    return PendingSemanticRound(block, tuple(choices), tuple(found), hidden[found], judged)


def _by_ratio(rows: Tensor, works: Sequence[Work], readback: Readback) -> Callable[[Readback], Drawing]:
    """Ratio rules: only rows a bonus token may be read from are chosen at."""
    if not works:
        return lambda _: Drawing((), None, tuple)
    probs = target_probs(rows, [group for work in works for group in _row_groups(work)])
    blocks = [work.checked.ratio for work in works if work.checked.ratio is not None]
    last: list[int] = []
    groups: list[RowGroup] = []
    for work, end in zip(works, accumulate(map(rows_of, blocks)), strict=True):
        if work.block.bonus:
            paths = work.checked.shape.leaf_paths()  # behind these stands no draft token
            last += [end - rows_of(work.block) + _row_behind(path) for path in paths]
            groups += [_path_group(work, path) for path in paths]
    choices = torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
    if last:
        index = index_tensor(last, rows.device)
        choices[index] = choose_tokens(rows[index], groups)
    if at_once(rows.device):
        return ask_ratio(probs, blocks, choices, readback)
    decided = verify_ratio(probs, blocks, choices)
    return lambda _: Drawing(decided, None, lambda: decided)


def _row_groups(work: Work) -> list[RowGroup]:
    """What each of the block's rows is conditioned on: a chain in one group, a tree's rows by their own paths."""
    block, generation = work.block, work.generation
    if block.parents is None:
        counts = generation.counts_behind(block.forced)
        rows = rows_of(block)
        allowed = generation.allowed((*block.forced, *block.draft), rows, len(block.forced))
        return [RowGroup(generation.params, work.checked.position, counts, block.draft, rows, allowed)]
    return [_path_group(work, path) for path in [(), *node_paths(block.parents)]]


def _path_group(work: Work, path: tuple[int, ...]) -> RowGroup:
    """The one row behind a path of nodes."""
    generation, tokens = work.generation, [work.block.draft[node] for node in path]
    behind = [*work.block.forced, *tokens]
    counts, allowed = generation.counts_behind(behind), generation.allowed(behind, 1, len(behind))
    return RowGroup(generation.params, work.checked.position + len(path), counts, (), 1, allowed)


def _row_behind(path: Sequence[int]) -> int:
    """Which of a block's rows predicts what follows a path of its nodes."""
    return 1 + path[-1] if path else 0


def _logprobs(
    rows: Tensor,
    works: Sequence[Work],
    outlines: Sequence[BlockDecision | PendingSemanticRound],
    starts: Sequence[int],
    drawing: Drawing,
    readback: Readback,
) -> Callable[[], list[tuple[TokenLogprobs, ...]]]:
    """Of the tokens each block commits: accepted ones, then the one after; of an open one, all it may."""
    if all(work.generation.logprobs is None for work in works):
        return lambda: [()] * len(works)
    queries: list[list[LogprobsQuery]] = []
    for work, outline, start in zip(works, outlines, starts, strict=False):
        top, asked = work.generation.logprobs, list[tuple[int, int]]()
        if top is not None:
            asked = outline.asked_tokens() if isinstance(outline, PendingSemanticRound) else _committed(work, outline)
        queries.append([LogprobsQuery(start + row, token_id, top or 0) for row, token_id in asked])
    answers = ask_logprobs(rows, [query for asked in queries for query in asked], readback, drawing.drawn)

    def entries() -> list[tuple[TokenLogprobs, ...]]:
        found = iter(answers())
        return [tuple(next(found) for _ in asked) for asked in queries]

    return entries


def _committed(work: Work, decision: BlockDecision) -> list[tuple[int, int]]:
    """Row and token of what a decision adds to the sequence."""
    after = [] if decision.token_after is None else [decision.token_after]
    tokens = [*(work.block.draft[node] for node in decision.path), *after]
    return list(zip([0, *(1 + node for node in decision.path)], tokens, strict=False))
