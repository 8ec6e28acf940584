"""Turn a drafter's answer into a block for the verifier, and the verifier's outcome into observations. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.exchanged import Deferral, WireFormat
from outrider.contracts.link import Csi
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block, target_rule
from outrider.protocols.registry import PROTOCOLS
from outrider.rounds.generation import Generation


@dataclass(frozen=True, slots=True)
class Judging:
    """Who judges a block's mismatches, and the link as it was when the block was planned."""

    judge: str
    channel: Csi | None


def make_block(
    generation: Generation,
    number: int,
    plan: DraftPlan | None,
    draft: Draft | None,
    wire: WireFormat,
    *,
    forced: tuple[int, ...],
    deferral: Deferral | None,
    judging: Judging | None = None,
) -> Block:
    """One round's request to the verifier.

    Args:
        generation: as committed now.
        number: of the round.
        plan: what was to be drafted; None in a round without a drafter.
        draft: what was; without a plan it was looked up. None if nothing was.
        wire: how it was sent.
        forced: tokens a device drew which the verifier does not have.
        deferral: what a device is to draw a correction from, where the protocol leaves that to it.
        judging: by whom mismatches are judged, where the protocol has that.
    """
    block = Block(
        generation=generation.name,
        round=number,
        position=generation.verifier_position,
        prefix_hash=generation.verifier_prefix_hash,
        forced=forced,
        rule=target_rule(generation.request.params),  # without a draft the target chooses by itself
    )
    if draft is None or not draft.token_ids:
        return block
    if plan is None:
        return replace(block, draft=draft.token_ids)
    rule = PROTOCOLS[plan.protocol].rule(generation.request.params, wire)
    block = replace(
        block,
        draft=draft.token_ids,
        parents=draft.parents,
        distribution=draft.distribution if rule in RATIO_RULES else None,
        rule=rule,
        deferral=deferral,
    )
    if rule is not AcceptanceRule.SEMANTIC or judging is None:
        return block
    return replace(block, hidden=draft.hidden, channel=judging.channel, judge=judging.judge)


def row_request(generation: Generation, number: int, wire: WireFormat) -> Block:
    """Ask for the target's distribution where a device is to draw the next token."""
    block = make_block(generation, number, None, None, wire, forced=(), deferral=None)
    return replace(block, bonus=False, rule=AcceptanceRule.RATIO, deferral=Deferral(wire.row_field))


def is_binding(plan: DraftPlan, params: SamplingParams, wire: WireFormat) -> bool:
    """Whether what is drawn for a plan has to be used: ratio rules are exact over all drafts, not over the quick."""
    return plan.window > 0 and PROTOCOLS[plan.protocol].rule(params, wire) in RATIO_RULES


def block_tokens(block: Block) -> int:
    """Positions a block spans, its prefix included."""
    return block.position + len(block.forced) + len(block.draft)


def tree_verdict(parents: Sequence[int], path: Sequence[int]) -> tuple[list[int], list[int]]:
    """How a tree was judged, depth by depth: the siblings offered, and which of them was accepted.

    The last depth, where all were rejected, has siblings but no winner.
    """
    offered, winners = [], []
    for parent, winner in zip_longest((-1, *path), path):
        siblings = [node for node, of in enumerate(parents) if of == parent]
        if siblings:
            offered.append(len(siblings))
        if winner is not None:
            winners.append(siblings.index(winner))
    return offered, winners
