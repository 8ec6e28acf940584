"""Build the verifier's block from a drafter's answer, and read a tree's verdict for the statistics. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from outrider.contracts.drafting import Draft
from outrider.contracts.exchanged import Deferral, WireFormat
from outrider.contracts.link import Csi
from outrider.contracts.verifying import RATIO_RULES, AcceptanceRule, Block, target_rule
from outrider.rounds.generation import Generation


@dataclass(frozen=True, slots=True)
class Judging:
    """Decision head (WISV) for a block's mismatches, and the link state when the block was planned."""

    judge: str
    channel: Csi | None


def empty_block(generation: Generation, number: int, forced: tuple[int, ...] = ()) -> Block:
    """Return the block of a round without a draft: the target chooses by itself.

    ``forced``: corrections drawn by a device that the verifier does not have yet.
    """
    return Block(
        generation=generation.name,
        round=number,
        position=generation.verifier_position,
        prefix_hash=generation.verifier_prefix_hash,
        forced=forced,
        rule=target_rule(generation.request.params),
    )


def with_device_draft(
    block: Block, draft: Draft, rule: AcceptanceRule, deferral: Deferral | None = None, judging: Judging | None = None
) -> Block:
    """Put a device's draft, of at least one token, into a block; ``deferral`` None: the verifier draws corrections."""
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
    """Make a block that verifies nothing and asks for the target's row, from which a device draws a correction."""
    block = empty_block(generation, number)
    return replace(block, bonus=False, rule=AcceptanceRule.RATIO, deferral=Deferral(wire.row_field))


def block_tokens(block: Block) -> int:
    """Count the positions of a block: its prefix, forced tokens and draft."""
    return block.position + len(block.forced) + len(block.draft)


def tree_verdict(parents: Sequence[int], path: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return, by depth along the accepted path: the number of siblings offered, and the index of the accepted one.

    If all siblings were rejected at the last depth, the second list is one shorter than the first.
    """
    offered, winners = [], []
    for parent, winner in zip_longest((-1, *path), path):
        siblings = [node for node, of in enumerate(parents) if of == parent]
        if siblings:
            offered.append(len(siblings))
        if winner is not None:
            winners.append(siblings.index(winner))
    return offered, winners
