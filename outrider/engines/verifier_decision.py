"""From the logits rows of a batch to the decision of each block, whatever its rule and shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from outrider.engines.base import RATIO_RULES, AcceptanceRule
from outrider.engines.token_tree import leaves, node_paths
from outrider.engines.verifier_work import Work
from outrider.sampling import RowGroup, choose_tokens, target_probs
from outrider.types import TokenLogprobs
from outrider.verification.decision import BlockDecision
from outrider.verification.logprobs import LogprobsQuery, token_logprobs
from outrider.verification.matching import match
from outrider.verification.speculative import RatioBlock, rows_of, verify_ratio


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rows of one block say."""

    block: BlockDecision
    logprobs: tuple[TokenLogprobs, ...]  # of the accepted tokens, then of the token after; empty unless asked for
    kept_row: Tensor | None  # [vocab], raw logits at the position of a deferred correction


def decide(logits: Tensor, works: Sequence[Work]) -> list[Decision]:
    """Decide the blocks that are complete.

    Args:
        logits: ``[R, vocab]``, all rows of the pass.
        works: the pass; those with ``remaining_tokens`` are left out of the answer.
    """
    rows, decided = _block_rows(logits, works), [work for work in works if not work.remaining_tokens]
    starts = [0, *accumulate(rows_of(work.block) for work in decided)]
    by_rule: tuple[list[int], list[int]] = ([], [])
    for index, work in enumerate(decided):
        by_rule[work.block.rule in RATIO_RULES].append(index)
    decisions: dict[int, BlockDecision] = {}
    for indices, rule in zip(by_rule, (_by_equality, _by_ratio), strict=True):
        part = rows
        if len(indices) < len(decided):
            at = [row for index in indices for row in range(starts[index], starts[index + 1])]
            part = rows[torch.tensor(at, dtype=torch.int64, device=rows.device)]
        decisions |= zip(indices, rule(part, [decided[index] for index in indices]), strict=True)
    in_order = [decisions[index] for index in range(len(decided))]
    logprobs = _logprobs(rows, decided, in_order, starts)
    kept = [
        rows[start + _row_behind(decision.path, work)].clone() if decision.deferred is not None else None
        for work, decision, start in zip(decided, in_order, starts, strict=False)
    ]
    return [Decision(*parts) for parts in zip(in_order, logprobs, kept, strict=True)]


def _block_rows(logits: Tensor, works: Sequence[Work]) -> Tensor:
    """Of all rows of ``works``, and the heads known before, those that decide blocks; ``logits`` itself if possible."""
    heads = [work.head for work in works if work.head is not None and not work.remaining_tokens]
    if not heads and sum(work.own_rows for work in works) == logits.shape[0]:
        return logits
    wanted, known = [], logits.shape[0]
    for work, end in zip(works, accumulate(work.logit_rows for work in works), strict=True):
        if work.head is not None and not work.remaining_tokens:
            wanted.append(known)
            known += 1
        wanted += range(end - work.own_rows, end)
    source = torch.cat([logits, torch.stack(heads).to(logits)]) if heads else logits
    return source[torch.tensor(wanted, dtype=torch.int64, device=source.device)]


def _by_equality(rows: Tensor, works: Sequence[Work]) -> list[BlockDecision]:
    """Greedy and shared noise: accept what the target chooses."""
    choices = choose_tokens(rows, [group for work in works for group in _row_groups(work)]).tolist()
    decisions = []
    for work, end in zip(works, accumulate(rows_of(work.block) for work in works), strict=True):
        block = work.block
        # A greedy target leaves a device nothing to draw: its row has one token, which is then the answer.
        bonus = block.bonus or (not block.draft and block.deferral is not None)
        decisions.append(match(choices[end - rows_of(block) : end], block.draft, block.parents, bonus=bonus))
    return decisions


def _by_ratio(rows: Tensor, works: Sequence[Work]) -> list[BlockDecision]:
    """Ratio rules: only rows a bonus token may be read from are chosen at."""
    if not works:
        return []
    probs = target_probs(rows, [group for work in works for group in _row_groups(work)])
    blocks = [
        RatioBlock(
            draft=work.block.draft,
            parents=work.block.parents,
            distribution=work.block.distribution,
            distinct=work.block.rule is AcceptanceRule.RATIO_DISTINCT,
            bonus=work.block.bonus,
            deferral=work.block.deferral,
            seed=work.generation.params.seed,
            position=work.position,
        )
        for work in works
    ]
    last: list[int] = []
    groups: list[RowGroup] = []
    for work, end in zip(works, accumulate(map(rows_of, blocks)), strict=True):
        if work.block.bonus:
            paths = _bonus_paths(work)
            last += [end - rows_of(work.block) + _row_behind(path, work) for path in paths]
            groups += [_path_group(work, path) for path in paths]
    choices = torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
    if last:
        index = torch.tensor(last, device=rows.device)
        choices[index] = choose_tokens(rows[index], groups)
    return verify_ratio(probs, blocks, choices)


def _row_groups(work: Work) -> list[RowGroup]:
    """What each of the block's rows is conditioned on: a chain in one group, a tree's rows by their own paths."""
    block, generation = work.block, work.generation
    if block.parents is None:
        counts = generation.counts_behind(block.forced)
        return [RowGroup(generation.params, work.position, counts, block.draft, rows_of(block))]
    return [_path_group(work, path) for path in [(), *node_paths(block.parents)]]


def _path_group(work: Work, path: tuple[int, ...]) -> RowGroup:
    """The one row behind a path of nodes."""
    generation, tokens = work.generation, [work.block.draft[node] for node in path]
    counts = generation.counts_behind([*work.block.forced, *tokens])
    return RowGroup(generation.params, work.position + len(path), counts, (), 1)


def _bonus_paths(work: Work) -> list[tuple[int, ...]]:
    """Paths behind which no draft token stands."""
    draft, parents = work.block.draft, work.block.parents
    if parents is None or not draft:
        return [tuple(range(len(draft)))]
    paths = node_paths(parents)
    return [paths[node] for node in leaves(parents)]


def _row_behind(path: Sequence[int], work: Work) -> int:
    """Which of the block's rows predicts what follows a path."""
    assert all(0 <= node < len(work.block.draft) for node in path), "a path names nodes of its draft"
    return 1 + path[-1] if path else 0


def _logprobs(
    rows: Tensor, works: Sequence[Work], decisions: Sequence[BlockDecision], starts: Sequence[int]
) -> list[tuple[TokenLogprobs, ...]]:
    """Of the tokens the block's rows stand for: accepted ones, then the one after."""
    queries: list[list[LogprobsQuery]] = []
    for work, decision, start in zip(works, decisions, starts, strict=False):
        top, draft = work.generation.logprobs, work.block.draft
        after = [] if decision.token_after is None else [decision.token_after]
        tokens = [] if top is None else [*(draft[node] for node in decision.path), *after]
        at = [start, *(start + 1 + node for node in decision.path)]
        queries.append([LogprobsQuery(row, token, top or 0) for row, token in zip(at, tokens, strict=False)])
    entries = iter(token_logprobs(rows, [query for asked in queries for query in asked]))
    return [tuple(next(entries) for _ in asked) for asked in queries]
