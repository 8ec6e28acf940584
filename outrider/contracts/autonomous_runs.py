"""Autonomous runs: rounds that a verifier makes by itself after a block, until the next block ends the run.

The rounds are blocks like any others, with numbers that follow the block's own. No device drafts for them. The verifier
may draft by prompt lookup where ``AutonomousRun.lookup`` grants it; the outcome then carries the draft. The sender of
the block applies the same rules to the outcomes: they alone say how far the run has come, and whether it is over.

The block that ends the run may have been drafted before the run came so far. Of such a *late* block only the part that
is not committed yet counts, and only under rules whose output does not depend on drafts. Both sides compute that part
from the same tokens in the same order, so no message has to carry it.
"""

from dataclasses import dataclass, replace

from outrider.contracts.prefix import extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OWN_CHOICE_RULES, AcceptanceRule, Block, Verified, target_rule


def goes_on(block: Block, outcome: Verified) -> bool:
    """Whether a round follows by itself after this outcome, which is of ``block`` or of a round of its run.

    Ignores ``until_round``: a later message may raise it while the run waits.
    """
    autonomous_run, after = block.autonomous_run, outcome.next_token
    if autonomous_run is None or after is None or after in autonomous_run.end_ids:
        return False
    return not outcome.accepted_path or autonomous_run.end_ids.isdisjoint(accepted_by(block, outcome))


def following(block: Block, outcome: Verified, params: SamplingParams) -> Block | None:
    if not goes_on(block, outcome):
        return None
    committed = committed_by(block, outcome)
    return Block(
        generation=block.generation,
        round=block.round + 1,
        position=block.position + len(committed),
        prefix_hash=extend_prefix_hash(block.prefix_hash, committed),
        rule=target_rule(params),
        autonomous_run=block.autonomous_run,
    )


def committed_by(block: Block, outcome: Verified) -> tuple[int, ...]:
    """Return all tokens committed by a round that another one follows."""
    assert outcome.next_token is not None, "nothing follows by itself what a device is to draw"
    return (*block.forced, *accepted_by(block, outcome), outcome.next_token)


def accepted_by(block: Block, outcome: Verified) -> tuple[int, ...]:
    """Return the accepted draft tokens of a round, of a device's draft or of the verifier's own."""
    draft = block.draft if outcome.own_draft is None else outcome.own_draft.token_ids
    return tuple(map(draft.__getitem__, outcome.accepted_path))


def may_be_late(rule: AcceptanceRule) -> bool:
    """Whether drafts may arrive late: the rule's output is the target's own, whatever is drafted."""
    return rule in OWN_CHOICE_RULES


def still_open(draft: tuple[int, ...], committed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the part of a chain after the tokens committed meanwhile; nothing if they differ from its front."""
    return draft[len(committed) :] if draft[: len(committed)] == committed else ()


def overtaken(block: Block, committed: tuple[int, ...]) -> Block:
    """Rebase a late block onto what was committed meanwhile. If its draft differs, it asks for the target's token."""
    return replace(
        block,
        position=block.position + len(committed),
        prefix_hash=extend_prefix_hash(block.prefix_hash, committed),
        draft=still_open(block.draft, committed),
    )


def survivals_after(survivals: tuple[float, ...], equal_tokens: int) -> tuple[float, ...]:
    """Return survivals of a chain's rest, given that its first ``equal_tokens`` tokens were right."""
    certain = survivals[equal_tokens - 1] if 0 < equal_tokens <= len(survivals) else 1.0
    return tuple(survival / certain for survival in survivals[equal_tokens:]) if certain else ()


def without_draft(block: Block) -> Block:
    """Return a block without draft and forced tokens: the form that later rounds of its run have."""
    return replace(block, forced=(), draft=()) if block.forced or block.draft else block


@dataclass(slots=True, eq=False)
class RunLog:
    """Tokens committed by an autonomous run and by the block before it."""

    start: int  # position of the first of ``token_ids``
    token_ids: list[int]
    # ``prefix_hashes[i]`` is the hash of all committed tokens before ``token_ids[i]``; the last one is the hash of all
    prefix_hashes: list[int]

    @classmethod
    def begin(cls, block: Block) -> "RunLog":
        return cls(block.position, [], [block.prefix_hash])

    def went_on(self, block: Block, outcome: Verified) -> None:
        for token_id in committed_by(block, outcome):
            self.token_ids.append(token_id)
            self.prefix_hashes.append(extend_prefix_hash(self.prefix_hashes[-1], (token_id,)))

    def rebased(self, block: Block) -> Block | None:
        """Rebase a block made while the run went on; None if its prefix was never the committed one.

        Drops the part of its draft that is committed already, or the whole draft if other tokens are. Allowed only
        under rules whose output does not depend on drafts: under others, output would depend on the time of arrival.
        """
        behind = block.position - self.start
        if not 0 <= behind < len(self.prefix_hashes) or block.prefix_hash != self.prefix_hashes[behind]:
            return None
        committed = tuple(self.token_ids[behind:])
        if not committed:
            return block
        chain = block.parents is None and not block.forced and block.deferral is None
        return overtaken(block, committed) if chain and may_be_late(block.rule) else None
