"""State of one generation in a verifier engine."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass, field, replace

from torch import Tensor

from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams, TokenLogprobs
from outrider.contracts.tree import node_paths
from outrider.contracts.trimming import trimmed
from outrider.contracts.verifying import (
    Block,
    BlockRefused,
    Failed,
    OpenGeneration,
    Outcome,
    Resolution,
    Stale,
    Verified,
)
from outrider.engines.kv.store import SequenceKv
from outrider.engines.verifier.block_validator import CheckedBlock
from outrider.engines.verifier.token_scores import ScoredRows, TokenScores, score
from outrider.engines.verifier.two_steps import PendingSemanticRound
from outrider.grammar.state import GrammarState
from outrider.sampling.device_tensors import Readback
from outrider.sampling.row_groups import RowGroup, TokenCounts, TokenMask
from outrider.verification.decision import BlockDecision
from outrider.verification.ratio_block import rows_of
from outrider.verification.semantic import MismatchJudge, hidden_fault


@dataclass(slots=True, eq=False)
class HeldGeneration:
    """One open generation. ``token_ids`` is the committed sequence; its last token has KV only if ``deferred``.

    From ``begin`` to the commit the state can be restored by ``abandon``: ``deferred_before`` and ``computed_before``
    hold what it was before the block that is begun.
    """

    params: SamplingParams
    token_ids: list[int]
    prefix_hash: int
    prompt_tokens: int
    kv: SequenceKv
    counts: TokenCounts | None
    logprobs: int | None  # alternatives to report with each token; None reports nothing
    prompt_scores: TokenScores | None  # None once they are reported
    last_outcome: Verified | None = None
    cached_tokens: int | None = None  # None until the prefix cache was searched
    deferred: bool = False  # the device draws the next token
    deferred_before: bool = False  # before the begun block; likewise the next field
    computed_before: int = 0
    begun: CheckedBlock | None = None  # the block that is not decided yet
    open_round: PendingSemanticRound | None = None  # of that block, once only its resolution is missing
    undrafted_round: int | None = None  # of the block that is verified without its draft
    opening: Future[GrammarState] | None = None  # of its grammar, if it has one
    preparing: Future[bool] | None = None  # masks of a block, made in another thread
    account: str = ""  # the making of masks takes turns by account
    forced_scores: TokenScores = field(default_factory=lambda: TokenScores(1, (), 0))  # of that block's forced tokens

    @classmethod
    def opened(
        cls, request: OpenGeneration, kv: SequenceKv, vocab_size: int, opening: Future[GrammarState] | None
    ) -> "HeldGeneration":
        token_ids = [*request.prompt_ids, *request.output_ids]
        penalised, scored = request.params.penalised, request.prompt_logprobs
        return cls(
            params=request.params,
            token_ids=token_ids,
            prompt_tokens=len(request.prompt_ids),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, token_ids),
            kv=kv,
            counts=TokenCounts(vocab_size, request.prompt_ids, request.output_ids) if penalised else None,
            logprobs=request.logprobs,
            prompt_scores=TokenScores(1, request.prompt_ids[1:], request.logprobs or 0) if scored else None,
            opening=opening,
            account=request.account,
        )

    @property
    def grammar(self) -> GrammarState | None:
        """State of its grammar after the output, if it has one; blocks until the grammar is compiled."""
        return None if self.opening is None else self.opening.result()

    def settled(self, block: Block) -> Outcome | None:
        """Return the outcome of a repeated or outdated block; None for the next block."""
        name, number = block.generation, block.round
        last, open_round = self.last_outcome, self.open_round
        if last is not None and number <= last.round:
            return last if number == last.round else Stale(name, number)
        if open_round is not None and number <= open_round.block.round:
            return open_round.undecided if number == open_round.block.round else Stale(name, number)
        if block.position != len(self.token_ids) or block.prefix_hash != self.prefix_hash:
            return Stale(name, number)
        return None

    def waiting_for(
        self, resolution: Resolution, judges: Mapping[str, MismatchJudge]
    ) -> PendingSemanticRound | Outcome:
        """Return the round that a resolution is for; if there is none, or it does not fit, the outcome."""
        name, number = resolution.generation, resolution.round
        open_round, last = self.open_round, self.last_outcome
        if open_round is None or open_round.block.round != number:
            return last if last is not None and last.round == number else Stale(name, number)
        hidden, asked = resolution.hidden, len(open_round.mismatches)
        width = judges[open_round.block.judge].drafter_width
        reason = None if hidden is None else hidden_fault(hidden, asked, width)
        return open_round if reason is None else BlockRefused(name, number, reason)

    def ungrammatical(self, block: Block) -> Failed | BlockRefused | None:
        """Return the outcome of any block if the grammar failed to compile or cannot be followed further."""
        if self.opening is None:
            return None
        if (error := self.opening.exception()) is not None:
            return Failed(block.generation, block.round, f"its grammar cannot be read: {error!r:.200}")
        return None if (fault := self.opening.result().fault()) is None else self._unfollowed(block, fault)

    def begin(self, checked: CheckedBlock, kept_row: Tensor | None) -> None:
        """Begin a block in place of the one begun before, whose computed positions and scores are dropped."""
        block, position = checked.block, len(self.token_ids)
        self.kv.rollback(position)
        self.begun, self.open_round, self.deferred_before = checked, None, self.deferred
        drawn_by_device = self.deferred and bool(block.forced)
        scored = block.forced if self.logprobs is not None else block.forced[: int(drawn_by_device)]
        if not (scored or self.forced_scores.token_ids):  # most blocks: nothing to score, before or now
            return
        check = RowGroup(self.params, position, self.counts, (), 1, self.allowed((), 1)) if drawn_by_device else None
        self.forced_scores = TokenScores(position, scored, self.logprobs or 0, check)
        if kept_row is not None and scored:
            readback = Readback()
            add_scores = score(kept_row[None], [ScoredRows(self.forced_scores, 0, 1)], readback)
            readback.read()  # now, as a refused block takes no memory of the pass
            add_scores()

    def abandon(self) -> None:
        """Restore the state before the begun block, after a pass over it failed at any point."""
        assert self.begun is not None, "only a block that was begun changes anything"
        self.undo(self.begun.block)
        self.begun, self.forced_scores = None, TokenScores(1, (), 0)
        # KV that earlier chunks computed stays; what the failed pass may have written is dropped.
        self.kv.rollback(min(self.computed_before, self.kv.computed_tokens))
        self.kv.busy = False

    def cut(self, block: Block) -> Block:
        """Return the block to verify: without its draft, if rows of the draft were not finite."""
        return block if block.round != self.undrafted_round else replace(trimmed(block, 0), bonus=True)

    def undo(self, block: Block) -> None:
        """Take back what was committed of a block, if its commit failed half-way."""
        self.deferred = self.deferred_before
        if self.grammar is not None:
            self.grammar.keep(block.position - self.prompt_tokens)
        if len(self.token_ids) == block.position:
            return
        self.token_ids = self.token_ids[: block.position]
        self.prefix_hash = block.prefix_hash
        self.kv.rollback(block.position)
        if self.counts is not None:
            prompt, output = self.token_ids[: self.prompt_tokens], self.token_ids[self.prompt_tokens :]
            self.counts = TokenCounts(len(self.counts.seen), prompt, output)

    def refuse_correction(self, block: Block, at: int = 0) -> BlockRefused:
        """Drop a block whose forced token at index ``at`` has probability 0 in the target's distribution."""
        self.begun = None
        self.kv.rollback(len(self.token_ids))
        self.kv.busy = False
        return BlockRefused(
            block.generation,
            block.round,
            f"needs a correction that the target can draw at position {block.position + at}, found token "
            f"{block.forced[at]}, whose probability there is 0; draw it from the row that was sent",
        )

    def unlawful(self, block: Block, path: Sequence[int], after: int | None = None) -> BlockRefused | None:
        """Return a refusal if the grammar forbids a forced token, or cannot be followed after the commit.

        ``path`` are the draft tokens to be committed, ``after`` the token after them.
        """
        if self.grammar is None:
            return None
        committed = (*block.forced, *path, *(() if after is None else (after,)))
        fault, lawful = self.grammar.fault(committed), self.grammar.lawful(committed)
        if fault is None and lawful == len(committed):
            return None
        if fault is None and lawful < len(block.forced):
            return self.refuse_correction(block, lawful)
        self.begun = None
        self.kv.rollback(len(self.token_ids))
        self.kv.busy = False
        return self._unfollowed(block, fault or "a token it allowed cannot be taken")

    def _unfollowed(self, block: Block, fault: str) -> BlockRefused:
        tokens = len(self.token_ids) - self.prompt_tokens
        found = f"found one that cannot be behind {tokens} tokens of the response: {fault}"
        return BlockRefused(
            block.generation, block.round, f"needs a grammar that can be followed, {found}", by_grammar=True
        )

    def allowed(self, path: Sequence[int], rows: int, first: int = 0) -> TokenMask | None:
        """Return masks of rows, row i after the committed tokens and ``path[: first + i]``; None: no grammar."""
        return None if self.grammar is None else self.grammar.masks(path, first, rows)

    def mask_paths(self, block: Block) -> list[tuple[int, ...]]:
        """Return the token paths that ``allowed`` is asked for: of the block's rows, and of a device's correction."""
        check = [()] if self.deferred and block.forced else []
        if block.parents is not None:
            paths = [(), *node_paths(block.parents)]
            return check + [(*block.forced, *(block.draft[node] for node in path)) for path in paths]
        tokens, first = (*block.forced, *block.draft), len(block.forced)
        return check + [tokens[:end] for end in range(first, first + rows_of(block))]

    def lawful(self, forced: Sequence[int], draft: Sequence[int]) -> int:
        """Return the number of leading draft tokens that the grammar allows after the forced ones."""
        if self.grammar is None:
            return len(draft)
        return max(0, self.grammar.lawful((*forced, *draft)) - len(forced))

    def forced(self, most: int) -> tuple[int, ...]:
        """Return up to ``most`` tokens that its grammar leaves no choice about, behind the committed ones."""
        return () if self.grammar is None else self.grammar.forced(most)

    def commit(self, token_ids: Sequence[int]) -> None:
        if self.grammar is not None:
            taken = self.grammar.feed(token_ids)
            assert taken == len(token_ids) or self.grammar.fault(), "what the grammar forbids is never decided"
        self.token_ids += token_ids
        self.prefix_hash = extend_prefix_hash(self.prefix_hash, token_ids)
        if self.counts is not None:
            self.counts.append(token_ids)

    def commit_block(
        self, block: Block, decision: BlockDecision, logprobs: Sequence[TokenLogprobs], *, deferred: bool
    ) -> Verified:
        """Append a block's decided tokens and roll the KV back to them; ``deferred``: the device draws the next one."""
        kv, path, after = self.kv, decision.path, decision.token_after
        committed = [*block.forced, *map(block.draft.__getitem__, path), *(() if after is None else (after,))]
        self.commit(committed)
        if deferred or committed:
            self.deferred = deferred
        # The last committed token is input of the next pass, so it has no KV; before a deferred correction it has.
        kv.rollback(len(self.token_ids) - (not self.deferred))
        kv.publish(self.token_ids, kv.computed_tokens)
        kv.busy = False
        self.last_outcome = Verified(
            generation=block.generation,
            round=block.round,
            accepted_path=path,
            overrides=decision.overrides,
            next_token=after,
            deferred=decision.deferred,
            cached_tokens=self.cached_tokens or 0,
            logprobs=() if self.logprobs is None else (*self.forced_scores.entries, *logprobs),
            prompt_logprobs=() if self.prompt_scores is None else (None, *self.prompt_scores.entries),
        )
        self.begun = self.open_round = self.prompt_scores = None
        return self.last_outcome

    def counts_behind(self, token_ids: Sequence[int]) -> TokenCounts | None:
        """Return the counts for penalties after the committed tokens and these; a copy if these are not empty."""
        if self.counts is None or not token_ids:
            return self.counts
        counts = deepcopy(self.counts)
        counts.append(token_ids)
        return counts

    @property
    def open_scores(self) -> list[TokenScores]:
        """Scores that still lack entries, in order of position."""
        if self.prompt_scores is None and not self.forced_scores.token_ids:  # most blocks
            return []
        held = [self.forced_scores] if self.prompt_scores is None else [self.prompt_scores, self.forced_scores]
        return [scores for scores in held if not scores.complete]
