"""A block of which less is verified than was drafted.

The cut may come from estimates and from the state of others, never from the tokens behind it nor from what they were
drawn from: a drafted token that is tested or not depending on what it is no longer has the law the rules assume.
"""

from dataclasses import replace

from outrider.contracts.exchanged import DenseDraft, DraftDistribution, ScalarDraft, SparseDraft
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block


def trimmed(block: Block, draft_tokens: int) -> Block:
    """The block with so many of its chain's draft tokens, and what was sent of these; a shorter draft stays as it is.

    A tree may be cut to nothing only.

    Without any it is a block that nobody drafted for: the target chooses, and there is no rejection to defer.

    Raises:
        ValueError: a tree, of which there is no front.
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
    """What was sent of the first tokens of a chain."""
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
    """The rule by which the target chooses where nothing is drafted."""
    if rule in RATIO_RULES:
        return AcceptanceRule.SHARED_NOISE
    return AcceptanceRule.GREEDY if rule is AcceptanceRule.SEMANTIC else rule
