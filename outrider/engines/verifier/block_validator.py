"""Block validator: the only check of blocks; code after it relies on it and does not check again.

A block that asks for an operation this kind of engine lacks is a caller's error and raises. A malformed block is
answered with ``BlockRefused``, since its draft comes from a device and may be anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.contracts.errors import ContextTooLongError, ParameterError, ShapeError, UnsupportedBlockError
from outrider.contracts.exchanged import DenseDraft, SparseDraft
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block, BlockRefused, OpenGeneration, target_rule
from outrider.engines.verifier.tree_branches import Branches
from outrider.verification.decision import DraftShape, shape_of
from outrider.verification.ratio_block import RatioBlock
from outrider.verification.semantic import MismatchJudge, hidden_fault


@dataclass(frozen=True, slots=True, eq=False)
class CheckedBlock:
    """A block that can be decided for any target logits. Made by ``BlockValidator.check`` only."""

    block: Block  # unchanged
    shape: DraftShape  # of its draft
    ratio: RatioBlock | None  # input of the ratio rules; None under other rules
    branches: Branches | None  # the tree's paths, if the model computes trees path by path

    @property
    def position(self) -> int:
        return self.block.position + len(self.block.forced)


@dataclass(frozen=True, slots=True)
class BlockValidator:
    """Limits of an engine, by which it accepts blocks."""

    vocab_size: int  # token ids are below it
    max_positions: int  # of the context; of a tree only the longest path counts
    total_blocks: int  # of KV, each of ``block_tokens`` slots; a tree takes one slot for each node
    block_tokens: int
    branching: bool  # the model computes trees path by path
    judges: Mapping[str, MismatchJudge]  # by name; without one the semantic rule is not supported

    def check_opening(self, request: OpenGeneration) -> None:
        """Check the tokens of a generation.

        Raises:
            ParameterError: no prompt, or a token id outside the vocabulary.
            ContextTooLongError: it leaves no position for output.
        """
        token_ids = [*request.prompt_ids, *request.output_ids]
        if not request.prompt_ids:
            raise ParameterError("prompt", "at least one token", "none")
        if len(token_ids) >= self.max_positions:
            raise ContextTooLongError(
                f"needs {len(token_ids) + 1} positions for prompt and output, found a limit of "
                f"{self.max_positions} (model context and KV budget); send a shorter prompt or raise the budget"
            )
        if bad := outside(token_ids, self.vocab_size):
            raise ParameterError("prompt", f"token ids in 0..{self.vocab_size - 1}", bad[0])

    def check(self, block: Block, params: SamplingParams) -> CheckedBlock | BlockRefused:
        """Accept a block, or refuse it with the reason why it can never be verified.

        Raises:
            UnsupportedBlockError: the block asks for an operation that is not implemented, or one that would change
                the distribution of a request with these ``params``; the message names both.
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
        needed = 0 if branches is None else branches.kv_blocks_needed(self.block_tokens)
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
    return [token_id for token_id in token_ids if not 0 <= token_id < vocab_size]
