"""Which blocks a paged verifier cannot decide: what it lacks, and what no engine could."""

from collections.abc import Sequence

import numpy as np

from outrider.contracts.errors import ShapeError, UnsupportedBlockError
from outrider.contracts.exchanged import DenseDraft, SparseDraft
from outrider.contracts.requests import SamplingParams
from outrider.contracts.tree import node_depths
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block
from outrider.verification.decision import children_by_row
from outrider.verification.semantic import MismatchJudge, hidden_fault
from outrider.verification.speculative import check_block


def check_supported(block: Block, params: SamplingParams, vocab_size: int, *, judged: bool) -> None:
    """Refuse what this engine does not implement, or what would change the request's output.

    Args:
        block: what is asked for.
        params: the request's.
        vocab_size: token ids are below it.
        judged: the engine was given a judge of mismatches.

    Raises:
        UnsupportedBlockError: names the block and what it asks for.
    """
    greedy, ratio = params.greedy, block.rule in RATIO_RULES
    noise, semantic = block.rule is AcceptanceRule.SHARED_NOISE, block.rule is AcceptanceRule.SEMANTIC
    for asked, wrong in (
        ("the semantic rule for a sampled generation", semantic and not greedy),
        ("the semantic rule, for which it was given no judge", semantic and not judged),
        ("the semantic rule for a token tree", semantic and block.parents is not None),
        ("a deferred correction under the semantic rule", semantic and block.deferral is not None),
        ("the greedy rule for a sampled generation", block.rule is AcceptanceRule.GREEDY and not greedy),
        (f"the {block.rule} rule for a greedy generation", ratio and greedy),
        ("a deferred correction under the shared-noise rule", noise and block.deferral is not None),
    ):
        if wrong:
            raise UnsupportedBlockError(
                f"block {block.generation}/{block.round} asks for {asked}; this engine verifies greedy generations by "
                "the greedy rule (chains by the semantic one too, with a judge) and sampled ones by "
                "shared noise or the ratio rules, the latter with deferral"
            )
    if ratio:
        try:
            check_block(block, vocab_size)
        except UnsupportedBlockError as error:
            raise UnsupportedBlockError(f"block {block.generation}/{block.round}: {error}") from error
        except ShapeError:
            return  # this block's fault alone: see ``fault``


def fault(
    block: Block,
    params: SamplingParams,
    vocab_size: int,
    max_positions: int,
    max_slots: int,
    judge: MismatchJudge | None,
) -> str | None:
    """Why a block can never be verified; None if it can.

    Args:
        block: what a coordinator sent; its draft comes from a device and may be anything.
        params: the request's.
        vocab_size: token ids are below it.
        max_positions: of the context; a tree takes as many as its longest path.
        max_slots: of KV; a tree takes one for each node.
        judge: what hidden states that came with the block are for.
    """
    try:
        children_by_row(len(block.draft), block.parents)
        if block.rule in RATIO_RULES:
            check_block(block, vocab_size)
    except ShapeError as error:
        return str(error)
    longest = len(block.draft) if block.parents is None else max(node_depths(block.parents), default=0)
    before = block.position + len(block.forced)
    if before + longest + 1 > max_positions:
        return f"needs {before + longest + 1} positions, found a limit of {max_positions}; send a shorter draft"
    if before + len(block.draft) > max_slots:
        return f"needs {before + len(block.draft)} KV slots, found {max_slots}; send a smaller tree"
    sparse = block.distribution.token_ids if isinstance(block.distribution, SparseDraft) else ()
    bad = outside([*block.forced, *block.draft], vocab_size)
    if not params.greedy:
        bad += [token_id for row in sparse for token_id in outside(row.tolist(), vocab_size)]
    if bad:
        return f"needs token ids in 0..{vocab_size - 1}, found {bad[0]}"
    if block.rule in RATIO_RULES and not _finite(block):
        return "needs draft rows with a largest logit that is finite, found one without; send what was sampled from"
    brought = block.hidden if block.rule is AcceptanceRule.SEMANTIC else None
    return None if brought is None or judge is None else hidden_fault(brought, len(block.draft), judge.drafter_width)


def outside(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """The ids that are no tokens."""
    return [token_id for token_id in token_ids if not 0 <= token_id < vocab_size]


def _finite(block: Block) -> bool:
    sent = block.distribution
    rows = sent.logits if isinstance(sent, SparseDraft | DenseDraft) else ()
    return all(len(row) and np.isfinite(row.max()) for row in rows)
