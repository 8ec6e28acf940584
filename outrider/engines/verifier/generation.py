"""What a paged verifier holds of one generation."""

from collections.abc import Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass, field, replace

from torch import Tensor

from outrider.contracts.prefix import extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.tree import node_paths
from outrider.contracts.trimming import trimmed
from outrider.contracts.verifying import Block, BlockRefused, Failed, Verified
from outrider.engines.kv.store import SequenceKv
from outrider.engines.verifier.block_validator import CheckedBlock
from outrider.engines.verifier.token_scores import ScoredRows, TokenScores, score
from outrider.engines.verifier.two_steps import PendingSemanticRound
from outrider.grammar.state import GrammarState
from outrider.sampling.device_tensors import Readback
from outrider.sampling.logits import RowGroup, TokenCounts
from outrider.sampling.token_edits import TokenMask
from outrider.verification.ratio_block import rows_of


@dataclass(slots=True, eq=False)
class HeldGeneration:
    """One open generation. ``token_ids`` is the committed sequence; its last token has KV only if ``deferred``."""

    params: SamplingParams
    token_ids: list[int]
    prefix_hash: int
    prompt_tokens: int
    kv: SequenceKv
    counts: TokenCounts | None
    logprobs: int | None  # alternatives to report with each token; None reports nothing
    prompt_scores: TokenScores | None  # until they are reported
    last_outcome: Verified | None = None
    cached_tokens: int | None = None  # known once the prefix cache was asked
    deferred: bool = False  # the next token is the device's to draw
    deferred_before: bool = False  # the block that is not decided yet; likewise what follows
    computed_before: int = 0
    begun: CheckedBlock | None = None  # the block that is not decided yet
    open_round: PendingSemanticRound | None = None  # that block's, once only its resolution is missing
    undrafted_round: int | None = None  # of the block that is verified without its draft
    opening: Future[GrammarState] | None = None  # of its grammar, if it has one
    preparing: Future[bool] | None = None  # masks of a block, in another thread
    account: str = ""  # whose masks take turns
    forced_scores: TokenScores = field(default_factory=lambda: TokenScores(1, (), 0))  # of that block's forced tokens

    @property
    def grammar(self) -> GrammarState | None:
        """Where its output stands in its grammar, if it has one; waits until that is known."""
        return None if self.opening is None else self.opening.result()

    def ungrammatical(self, block: Block) -> Failed | BlockRefused | None:
        """What is told of any block if the grammar cannot be followed from where the output stands."""
        if self.opening is None:
            return None
        if (error := self.opening.exception()) is not None:
            return Failed(block.generation, block.round, f"its grammar cannot be read: {error!r:.200}")
        return None if (fault := self.opening.result().fault()) is None else self._unfollowed(block, fault)

    def begin(self, checked: CheckedBlock, kept_row: Tensor | None) -> None:
        """Take up a block that is not the one begun before; what was computed for that one is forgotten."""
        block, position = checked.block, len(self.token_ids)
        self.kv.rollback(position)
        self.begun, self.open_round, self.deferred_before = checked, None, self.deferred
        drawn_by_device = self.deferred and bool(block.forced)
        scored = block.forced if self.logprobs is not None else block.forced[: int(drawn_by_device)]
        if not (scored or self.forced_scores.token_ids):  # nothing to score, as most often, and nothing before either
            return
        check = RowGroup(self.params, position, self.counts, (), 1, self.allowed((), 1)) if drawn_by_device else None
        self.forced_scores = TokenScores(position, scored, self.logprobs or 0, check)
        if kept_row is not None and scored:
            readback = Readback()
            add_scores = score(kept_row[None], [ScoredRows(self.forced_scores, 0, 1)], readback)
            readback.read()  # whether the block is refused decides what the pass has room for
            add_scores()

    def abandon(self) -> None:
        """Be as before the block that was begun: a pass over it went wrong, wherever that was."""
        assert self.begun is not None, "only a block that was begun changes anything"
        self.undo(self.begun.block)
        self.begun, self.forced_scores = None, TokenScores(1, (), 0)
        self.kv.rollback(min(self.computed_before, self.kv.computed_tokens))
        self.kv.busy = False

    def cut(self, block: Block) -> Block:
        """A block as it is verified: without its draft, if rows of that were not finite."""
        return block if block.round != self.undrafted_round else replace(trimmed(block, 0), bonus=True)

    def undo(self, block: Block) -> None:
        """Take back what was committed of a block, if that went wrong half-way."""
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
        """Drop a block that forces a token the target could not have said: the one ``at`` this place of them."""
        self.begun = None
        self.kv.rollback(len(self.token_ids))
        self.kv.busy = False
        return BlockRefused(
            block.generation,
            block.round,
            f"needs a correction the target could have said at position {block.position + at}, found token "
            f"{block.forced[at]}, whose probability there is 0; draw it from the row that was sent",
        )

    def unlawful(self, block: Block, path: Sequence[int], after: int | None = None) -> BlockRefused | None:
        """What is told of a block that forces what the grammar forbids, or behind which nobody can say what may follow.

        ``path`` are its draft tokens that are to be committed, ``after`` the one behind them.
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
        """What the grammar allows in rows behind the committed tokens and ``path[: first + row]``; None: all."""
        return None if self.grammar is None else self.grammar.masks(path, first, rows)

    def mask_paths(self, block: Block) -> list[tuple[int, ...]]:
        """Behind which tokens ``allowed`` is asked for a block: for its rows, and where a device drew a token."""
        check = [()] if self.deferred and block.forced else []
        if block.parents is not None:
            paths = [(), *node_paths(block.parents)]
            return check + [(*block.forced, *(block.draft[node] for node in path)) for path in paths]
        tokens, first = (*block.forced, *block.draft), len(block.forced)
        return check + [tokens[:end] for end in range(first, first + rows_of(block))]

    def lawful(self, forced: Sequence[int], draft: Sequence[int]) -> int:
        """How many leading tokens of a draft the grammar allows."""
        if self.grammar is None:
            return len(draft)
        return max(0, self.grammar.lawful((*forced, *draft)) - len(forced))

    def commit(self, token_ids: Sequence[int]) -> None:
        if self.grammar is not None:
            taken = self.grammar.feed(token_ids)
            assert taken == len(token_ids) or self.grammar.fault(), "what the grammar forbids is never decided"
        self.token_ids += token_ids
        self.prefix_hash = extend_prefix_hash(self.prefix_hash, token_ids)
        if self.counts is not None:
            self.counts.append(token_ids)

    def counts_behind(self, token_ids: Sequence[int]) -> TokenCounts | None:
        """What penalties need behind the committed tokens and these."""
        if self.counts is None or not token_ids:
            return self.counts
        counts = deepcopy(self.counts)
        counts.append(token_ids)
        return counts

    @property
    def open_scores(self) -> list[TokenScores]:
        """What still has tokens to score, in the order of their positions."""
        if self.prompt_scores is None and not self.forced_scores.token_ids:  # most blocks
            return []
        held = [self.forced_scores] if self.prompt_scores is None else [self.prompt_scores, self.forced_scores]
        return [scores for scores in held if not scores.complete]
