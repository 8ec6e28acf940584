"""State of one generation in a drafter: the committed sequence, the nodes drafted after it, the block in work.

Bookkeeping only: no model, no forward pass.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from outrider.contracts.drafting import Child, Draft, DraftRequest, DraftTerms
from outrider.contracts.exchanged import FloatRow, IntRow
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, common_prefix, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.drafting.features import DraftFeatures
from outrider.drafting.growing import GrowingTree
from outrider.drafting.recalibration import ChainPredictor, ChainVerdict, Recalibration, SentChain, verdict_on
from outrider.drafting.stops import NeverStop, StopRule
from outrider.engines.drafter.tree import DraftTree
from outrider.engines.segments import Move
from outrider.protocols.protocol import DraftProtocol, DrawnRow, Layer
from outrider.protocols.registry import PROTOCOLS
from outrider.sampling.row_groups import TokenCounts

if TYPE_CHECKING:  # devices have other KV
    from outrider.engines.kv.store import SequenceKv

RowKey = tuple[int, int]  # position a row predicts, hash of the tokens before it


@dataclass(slots=True, eq=False)
class DraftingJob:
    request: DraftRequest
    position: int  # committed tokens at the request: before the correction, if there is one
    shape: tuple[int, ...] = ()  # children of every node by depth, as far as memory allows
    correcting: bool = False  # whether the next row is the one the correction is drawn from
    correction: int | None = None
    depth: int = 0  # layers drafted so far
    rule: StopRule = field(default_factory=NeverStop)  # for the next position of a chain
    predictor: ChainPredictor | None = None  # used by the rule of a chain
    keeps_features: bool = False  # whether features of its rows are kept even if the rule uses none
    growing: GrowingTree | None = None  # state of a dynamic tree
    rows: list[DrawnRow] = field(default_factory=list)  # of the nodes with children, the sequence first
    hidden: list[FloatRow] = field(default_factory=list)

    @property
    def protocol(self) -> DraftProtocol:
        return PROTOCOLS[self.request.plan.protocol]

    @property
    def is_tree(self) -> bool:
        return self.request.plan.is_tree

    @property
    def draws_chain(self) -> bool:
        """Whether the next draw is the next token of a chain."""
        return not self.correcting and not self.is_tree

    @property
    def wants_row(self) -> bool:
        return self.correcting or self.depth < len(self.shape)

    def keep(self, features: DraftFeatures) -> None:
        """Keep features of the row of a chain's next token, if they are wanted."""
        if self.keeps_features and self.predictor is not None:
            self.predictor.keep(features)

    def stop(self) -> None:
        self.shape = self.shape[: self.depth]


class DraftedGeneration:
    def __init__(
        self,
        request: OpenGeneration,
        terms: DraftTerms,
        kv: "SequenceKv",
        vocab_size: int,
        recalibration: Recalibration,
    ) -> None:
        """Start with the committed tokens, and the recalibration learned from other generations."""
        self.params: SamplingParams = request.params
        self.terms = terms
        self.kv = kv
        self.token_ids = [*request.prompt_ids, *request.output_ids]  # committed, a drawn correction included
        self.prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, self.token_ids)
        self.tree = DraftTree()  # drafted after them; its KV may be used again
        self.job: DraftingJob | None = None
        self.answered: tuple[DraftRequest, Draft] | None = None  # the last block, to answer a repeated request
        self.recalibration = recalibration
        self.sent_chain: SentChain | None = None  # of the last block, until its verdict is known
        # Fixed-point rows that a correction may be drawn from: those of the last block, and the last correction's.
        self.rows: dict[RowKey, IntRow] = {}
        self._request, self._prompt_tokens = request, len(request.prompt_ids)
        self._vocab_size = vocab_size
        self._counts: TokenCounts | None = None

    @property
    def opening(self) -> OpenGeneration:
        """How another engine opens it as it is now."""
        return replace(self._request, output_ids=tuple(self.token_ids[self._prompt_tokens :]))

    @property
    def row_key(self) -> RowKey:
        return len(self.token_ids), self.prefix_hash

    def synchronise(self, request: DraftRequest) -> list[Move] | None:
        """Set the committed sequence as the request says, and keep KV as far as it is still valid.

        Returns:
            KV to move before any computation (a tree's accepted path). None if the request assumes another sequence;
            then nothing has changed.
        """
        at, feedback = request.feedback_position, request.feedback
        if not self._prompt_tokens <= at <= len(self.token_ids):
            return None
        known = self.token_ids[at:]
        if known:
            prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, [*self.token_ids[:at], *feedback])
        else:
            prefix_hash = extend_prefix_hash(self.prefix_hash, feedback)
        if prefix_hash != request.prefix_hash:
            return None
        common = common_prefix(known, feedback)
        moves, kept = self._accept(feedback[common:]) if common == len(known) else ([], 0)
        self.token_ids[at:] = feedback
        self.prefix_hash = prefix_hash
        self.tree = DraftTree()
        self._counts = None
        self.kv.rollback(at + common + kept)
        return moves

    def verdict(self, request: DraftRequest) -> ChainVerdict | None:
        """Return the verdict on the last chain, if the request has one. Call it before ``synchronise``."""
        if self.sent_chain is None or self.answered is None:
            return None
        last, draft = self.answered
        known = tuple(self.token_ids[request.feedback_position :])
        if request.feedback[: len(known)] != known:
            return None  # the chain follows tokens that were not committed
        return verdict_on(
            self.sent_chain,
            draft.token_ids,
            request.feedback[len(known) :],
            correction_owed=request.correction is not None,
            next_round=request.round == last.round + 1,
        )

    def commit_correction(self, token_id: int) -> None:
        self.token_ids.append(token_id)
        self.prefix_hash = extend_prefix_hash(self.prefix_hash, [token_id])
        self._counts = None

    def counts_at(self, node: int) -> TokenCounts | None:
        """Return the counts for penalties before the children of ``node``; None without penalties."""
        if not self.params.penalised:
            return None
        if self._counts is None:
            prompt, output = self.token_ids[: self._prompt_tokens], self.token_ids[self._prompt_tokens :]
            self._counts = TokenCounts(self._vocab_size, prompt, output)
        counts = deepcopy(self._counts)
        counts.append(self.tree.tokens_to(node))
        return counts

    def next_layer(self, job: DraftingJob) -> Layer:
        return Layer(self.terms.wire, self.params, len(self.token_ids) + job.depth, job.shape[job.depth])

    def grow(self, job: DraftingJob, rows: Sequence[DrawnRow]) -> None:
        """Add the next layer: one row for each node of the last."""
        for node, row in zip(self.tree.growing, rows, strict=True):
            if row.numerators is not None:
                before = self.tree.tokens_to(node)
                key = len(self.token_ids) + len(before), extend_prefix_hash(self.prefix_hash, before)
                self.rows[key] = row.numerators
        job.rows += rows
        job.depth += 1
        self.tree.add_layer([row.token_ids for row in rows])

    def grow_best(self, job: DraftingJob, children: Sequence[Sequence[Child]]) -> None:
        """Add the next layer of a dynamic tree; only nodes that get children next are computed."""
        assert job.growing is not None
        parents, job.growing = job.growing.growing, job.growing.grown(children)
        job.depth += 1
        paths = [branch.token_ids for branch in job.growing.growing]
        self.tree.add_layer([[path[-1] for path in paths if path[:-1] == parent.token_ids] for parent in parents])
        if not paths:
            job.stop()

    def draft(self, job: DraftingJob) -> Draft:
        token_ids, parents = tuple(self.tree.token_ids), tuple(self.tree.parents)
        if job.growing is not None:
            token_ids, parents = job.growing.block()
        return Draft(
            generation=job.request.generation,
            round=job.request.round,
            position=job.position,
            token_ids=token_ids,
            correction=job.correction,
            parents=parents if job.is_tree else None,
            distribution=job.protocol.distribution(job.rows, self.terms.wire, self.params),
            hidden=np.stack(job.hidden) if job.hidden else None,
        )

    def finish(self, job: DraftingJob) -> Draft:
        """Return the complete block, and keep it for a repeated request and for its verdict."""
        draft = self.draft(job)
        self.answered = (job.request, draft)
        self.sent_chain = None if job.predictor is None else job.predictor.sent_chain(len(draft.token_ids))
        self.job = None
        return draft

    def _accept(self, token_ids: tuple[int, ...]) -> tuple[list[Move], int]:
        """Return the moves that make the KV of the path along ``token_ids`` consecutive, and its computed length."""
        base = len(self.token_ids)
        path = [node for node in self.tree.follow(token_ids) if base + node < self.kv.computed_tokens]
        sources, targets = [base + node for node in path], list(range(base, base + len(path)))
        moves = [Move(list(self.kv.blocks), sources, targets)] if sources != targets else []
        return moves, len(path)
