"""What a torch verifier holds of a generation, what a block contributes to one forward pass, and what its rows say."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from outrider.engines.base import Block, Verified
from outrider.engines.kv_store import SequenceKv
from outrider.engines.paged_model import Segment
from outrider.prefix import extend_prefix_hash
from outrider.sampling import RowGroup, TokenCounts
from outrider.types import SamplingParams, TokenLogprobs
from outrider.verification.chain import ChainDecision, verify_chains
from outrider.verification.logprobs import LogprobsQuery, token_logprobs


@dataclass(slots=True)
class PromptScores:
    """Log-probabilities of a prompt, gathered while its KV is computed. They outlive an eviction of that KV."""

    prompt_ids: tuple[int, ...]
    top: int
    entries: list[TokenLogprobs | None] = field(default_factory=lambda: [None])  # of the leading tokens

    @property
    def scored_positions(self) -> int:
        """Leading positions whose logits are no longer needed."""
        return len(self.entries) - 1

    @property
    def complete(self) -> bool:
        """Whether every prompt token has its entry."""
        return len(self.entries) == len(self.prompt_ids)

    def unscored(self, start: int, stop: int) -> range:
        """Positions of ``start .. stop - 1`` whose logits are needed; computed in order, so none is skipped."""
        positions = range(max(start, self.scored_positions), min(stop, len(self.prompt_ids) - 1))
        assert not positions or positions.start == self.scored_positions, "prompt positions were left out"
        return positions


@dataclass(slots=True, eq=False)
class HeldGeneration:
    """One open generation. ``token_ids`` is the committed sequence; its last token is never in the KV."""

    params: SamplingParams
    token_ids: list[int]
    prefix_hash: int
    kv: SequenceKv
    counts: TokenCounts | None
    logprobs: int | None  # alternatives to report with each token; None reports nothing
    prompt_scores: PromptScores | None  # until they are reported
    last_outcome: Verified | None = None
    cached_tokens: int | None = None  # known once the prefix cache was asked
    unfinished: Block | None = None  # the block whose prefix is being computed in chunks

    def append(self, token_ids: Sequence[int]) -> None:
        """Commit tokens."""
        self.token_ids += token_ids
        self.prefix_hash = extend_prefix_hash(self.prefix_hash, token_ids)
        if self.counts is not None:
            self.counts.append(token_ids)

    def restore(self, context: Sequence[int]) -> int:
        """Take what the prefix cache has of ``context``, but nothing whose logits are still needed."""
        scores = self.prompt_scores
        if scores is not None and not scores.complete:
            context = context[: scores.scored_positions + 1]
        return self.kv.restore(context)


@dataclass(frozen=True, slots=True)
class Work:
    """What one block contributes to this forward pass."""

    index: int  # of the block in the batch
    block: Block
    generation: HeldGeneration
    context: list[int]  # committed and forced tokens
    segment: Segment | None  # None: nothing left to compute
    own_rows: int  # logits rows that decide the block, the last of the segment's; 0 while it is unfinished
    prompt_positions: range  # whose logits score the prompt
    computed_tokens: int  # positions with KV after the pass
    remaining_tokens: int  # positions still to compute after it; 0 decides the block

    @property
    def logit_rows(self) -> int:
        """Logits rows the pass returns for this block."""
        return 0 if self.segment is None else self.segment.logit_rows

    @property
    def prefix_tokens(self) -> int:
        """Positions it computes before those of its own rows."""
        return 0 if self.segment is None else len(self.segment.token_ids) - self.own_rows


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rows of one block say."""

    chain: ChainDecision
    logprobs: tuple[TokenLogprobs, ...]  # of the accepted tokens, then of the token after; empty unless asked for


def score_prompts(logits: torch.Tensor, works: Sequence[Work]) -> None:
    """Add to each generation's ``prompt_scores`` what this pass has computed; ``logits`` are all rows of ``works``."""
    queries: list[LogprobsQuery] = []
    waiting: list[tuple[PromptScores, int]] = []
    for work, end in zip(works, accumulate(work.logit_rows for work in works), strict=True):
        scores = work.generation.prompt_scores
        if scores is None or not work.prompt_positions:
            continue
        shift = end - work.computed_tokens
        queries += [LogprobsQuery(p + shift, scores.prompt_ids[p + 1], scores.top) for p in work.prompt_positions]
        waiting.append((scores, len(work.prompt_positions)))
    entries = iter(token_logprobs(logits, queries))
    for scores, count in waiting:
        scores.entries += [next(entries) for _ in range(count)]


def own_rows(logits: torch.Tensor, works: Sequence[Work]) -> torch.Tensor:
    """Of all rows of ``works`` those that decide blocks; ``logits`` itself if there are no others."""
    if sum(work.own_rows for work in works) == logits.shape[0]:
        return logits
    ends = accumulate(work.logit_rows for work in works)
    wanted = [row for work, end in zip(works, ends, strict=True) for row in range(end - work.own_rows, end)]
    return logits[torch.tensor(wanted, dtype=torch.int64, device=logits.device)]


def decide(logits: torch.Tensor, works: Sequence[Work]) -> list[Decision]:
    """Match each block's draft with the target's choices; ``logits`` are the own rows of ``works``, all decided."""
    groups = []
    for work in works:
        counts = work.generation.counts
        if counts is not None and work.block.forced:
            counts = deepcopy(counts)
            counts.append(work.block.forced)
        groups.append(RowGroup(work.generation.params, len(work.context), counts, work.block.draft, work.own_rows))
    chains = verify_chains(logits, groups, [work.block.draft for work in works])
    queries: list[list[LogprobsQuery]] = []
    for work, chain, end in zip(works, chains, accumulate(work.own_rows for work in works), strict=True):
        top, first = work.generation.logprobs, end - work.own_rows
        reported = [] if top is None else _committed(work.block, chain)
        queries.append([LogprobsQuery(first + i, token_id, top or 0) for i, token_id in enumerate(reported)])
    entries = iter(token_logprobs(logits, [query for asked in queries for query in asked]))
    return [Decision(chain, tuple(next(entries) for _ in asked)) for chain, asked in zip(chains, queries, strict=True)]


def _committed(block: Block, chain: ChainDecision) -> list[int]:
    """The tokens the block's rows stand for: accepted ones, then the one after."""
    after = [] if chain.token_after is None else [chain.token_after]
    return [*block.draft[: chain.accepted_len], *after]
