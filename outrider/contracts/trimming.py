"""Trimming: verify fewer tokens of a block than were drafted.

The cut may depend on estimates and on other generations, never on the tokens cut off or the distributions they were
drawn from. A token that is tested or not depending on its value no longer has the distribution the rules assume.
"""

from dataclasses import replace

from outrider.contracts.exchanged import DenseDraft, DraftDistribution, ScalarDraft, SparseDraft
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block


def trimmed(block: Block, draft_tokens: int) -> Block:
    """Return the block with the first ``draft_tokens`` of its chain, and the distributions of these.

    A draft that is not longer is returned unchanged. A tree can only be cut to nothing. A block without a draft has no
    rejection to defer; the target chooses its token.

    Raises:
        ValueError: a tree is to be cut to a part.
    """
    if block.parents is not None and draft_tokens:
        raise ValueError(f"needs a chain to cut, found the tree of {block.generation}")
    kept = min(draft_tokens, len(block.draft))
    if kept == len(block.draft):
        return block
    return replace(
        block,
        draft=block.draft[:kept],
        parents=None,
        distribution=_front(block.distribution, kept) if kept else None,
        rule=block.rule if kept else _alone(block.rule),
        deferral=block.deferral if kept else None,
        hidden=None if block.hidden is None or not kept else block.hidden[:kept],
    )


def _front(sent: DraftDistribution, tokens: int) -> DraftDistribution:
    match sent:
        case ScalarDraft(numerators, bits):
            return ScalarDraft(numerators[:tokens], bits)
        case SparseDraft(token_ids, logits):
            return SparseDraft(token_ids[:tokens], logits[:tokens])
        case DenseDraft(logits):
            return DenseDraft(logits[:tokens])
        case None:
            return None


def _alone(rule: AcceptanceRule) -> AcceptanceRule:
    if rule in RATIO_RULES:
        return AcceptanceRule.SHARED_NOISE
    return AcceptanceRule.GREEDY if rule is AcceptanceRule.SEMANTIC else rule
