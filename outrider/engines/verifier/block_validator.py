"""The one door for blocks: what is let in here can be decided, and nobody behind it looks again.

A block that asks for what no engine of this kind does is an error of who sent it. One that is malformed comes back
``BlockRefused``: its draft is a device's and may be anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.errors import ShapeError, UnsupportedBlockError
from outrider.contracts.exchanged import DenseDraft, SparseDraft
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block, BlockRefused, target_rule
from outrider.engines.verifier.tree_branches import Branches
from outrider.verification.decision import DraftShape, shape_of
from outrider.verification.ratio_block import RatioBlock
from outrider.verification.semantic import MismatchJudge, hidden_fault


@dataclass(frozen=True, slots=True, eq=False)
class CheckedBlock:
    """A block that can be decided, whatever the rows of the target will be. ``BlockValidator.check`` makes them."""

    block: Block  # as it was asked
    shape: DraftShape  # of its draft
    ratio: RatioBlock | None  # what the ratio rules decide; None under the other rules
    branches: Branches | None  # its tree path by path, if the model takes trees so

    @property
    def position(self) -> int:
        """Committed and forced tokens: the position of the first draft token."""
        return self.block.position + len(self.block.forced)


@dataclass(frozen=True, slots=True)
class BlockValidator:
    """What an engine can take."""

    vocab_size: int  # token ids are below it
    max_positions: int  # of the context; a tree takes as many as its longest path
    total_blocks: int  # of KV, each of ``block_tokens`` slots; a tree takes one slot for each node
    block_tokens: int
    branching: bool  # the model takes trees path by path
    judges: Mapping[str, MismatchJudge]  # of mismatches, by name; without one there is no semantic rule

    def check(self, block: Block, params: SamplingParams) -> CheckedBlock | BlockRefused:
        """Let a block in, or say why it can never be verified.

        Raises:
            UnsupportedBlockError: names the block, and what it asks for that is not implemented or would change the
                output of a request with these ``params``.
        """
        _check_supported(block, params, judged=block.judge in self.judges)
        nodes, ratio, position = len(block.draft), None, block.position + len(block.forced)
        try:
            if block.rule in RATIO_RULES:
                distinct = block.rule is AcceptanceRule.RATIO_DISTINCT
                asked = block.distribution, distinct, block.bonus, block.deferral
                ratio = RatioBlock(block.draft, block.parents, *asked, params.seed, position)
            shape = shape_of(nodes, block.parents) if ratio is None else ratio.shape
        except UnsupportedBlockError as error:
            raise UnsupportedBlockError(f"block {block.generation}/{block.round}: {error}") from error
        except ShapeError as error:
            return BlockRefused(block.generation, block.round, str(error))
        if (reason := self._overlong(position, nodes, shape.depth)) is not None:
            return BlockRefused(block.generation, block.round, reason, too_long=True)
        if (reason := self._malformed(block, params)) is not None:
            return BlockRefused(block.generation, block.round, reason)
        by_path = self.branching and block.parents and nodes
        branches = Branches(tuple(shape.leaf_paths()), position) if by_path else None
        needed = 0 if branches is None else branches.blocks_needed(self.block_tokens)
        if needed > self.total_blocks:
            reason = f"needs {needed} KV blocks for a tree's paths, found {self.total_blocks}; send a smaller tree"
            return BlockRefused(block.generation, block.round, reason, too_long=True)
        return CheckedBlock(block, shape, ratio, branches)

    def _overlong(self, position: int, nodes: int, longest: int) -> str | None:
        last, slots = position + longest + 1, self.total_blocks * self.block_tokens
        if last > self.max_positions:
            return f"needs {last} positions, found a limit of {self.max_positions}; send a shorter draft"
        if position + nodes > slots:
            return f"needs {position + nodes} KV slots, found {slots}; send a smaller tree"
        return None

    def _malformed(self, block: Block, params: SamplingParams) -> str | None:
        sent, vocab_size = block.distribution, self.vocab_size
        token_ids = [*block.forced, *block.draft]
        if isinstance(sent, SparseDraft) and not params.greedy:
            token_ids += [token_id for row in sent.token_ids for token_id in row.tolist()]
        if bad := outside(token_ids, vocab_size):
            return f"needs token ids in 0..{vocab_size - 1}, found {bad[0]}"
        if block.rule in RATIO_RULES and isinstance(sent, SparseDraft | DenseDraft):
            if isinstance(sent, DenseDraft) and sent.logits.shape[1:] != (vocab_size,):
                return f"dense draft rows need {vocab_size} logits each, found {sent.logits.shape[1:]}"
            if not all(len(row) and np.isfinite(row.max()) for row in sent.logits):
                needed = "draft rows with a largest logit that is finite"
                return f"needs {needed}, found one without; send what was sampled from"
        if block.rule is not AcceptanceRule.SEMANTIC or block.hidden is None:
            return None
        return hidden_fault(block.hidden, len(block.draft), self.judges[block.judge].drafter_width)


def _check_supported(block: Block, params: SamplingParams, *, judged: bool) -> None:
    greedy, rule = params.greedy, block.rule
    if rule is target_rule(params) and block.deferral is None:  # most blocks
        return
    noise, semantic = rule is AcceptanceRule.SHARED_NOISE, rule is AcceptanceRule.SEMANTIC
    for asked, wrong in (
        ("the semantic rule for a sampled generation", semantic and not greedy),
        ("the semantic rule, for which it was given no judge", semantic and not judged),
        ("the semantic rule for a token tree", semantic and block.parents is not None),
        ("a deferred correction under the semantic rule", semantic and block.deferral is not None),
        ("the greedy rule for a sampled generation", rule is AcceptanceRule.GREEDY and not greedy),
        (f"the {rule} rule for a greedy generation", rule in RATIO_RULES and greedy),
        ("a deferred correction under the shared-noise rule", noise and block.deferral is not None),
    ):
        if wrong:
            raise UnsupportedBlockError(
                f"block {block.generation}/{block.round} asks for {asked}; this engine verifies greedy generations by "
                "the greedy rule (chains by the semantic one too, with a judge) and sampled ones by shared noise or "
                "the ratio rules, the latter with deferral"
            )


def outside(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """The ids that are no tokens."""
    return [token_id for token_id in token_ids if not 0 <= token_id < vocab_size]
