"""Autonomous runs: a verifier goes on alone behind a block, until it is called back.

An autonomous run's rounds are blocks like any others, numbered on from the block's own. No device drafts for them; the
verifier may draft by prompt lookup where it was granted that (``AutonomousRun.lookup``); the outcome has the draft.
Whoever sent the block counts along: it knows from the outcomes alone how far an autonomous run has come and whether it
is over.

What calls it back may have been drafted before the autonomous run came so far. Such a *late* block is worth what is not
committed yet, under rules by which the output is the target's own whatever is drafted: both count that alike, too.
"""

from dataclasses import dataclass, replace

from outrider.contracts.prefix import extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import OWN_CHOICE_RULES, AcceptanceRule, Block, Verified, target_rule


def goes_on(block: Block, outcome: Verified) -> bool:
    """Whether a round follows by itself the one with this outcome, which is ``block``'s or followed it.

    The grant is not looked at: a later message may extend it while the run waits.
    """
    autonomous_run, after = block.autonomous_run, outcome.next_token
    if autonomous_run is None or after is None or after in autonomous_run.end_ids:
        return False
    return not outcome.accepted_path or autonomous_run.end_ids.isdisjoint(accepted_by(block, outcome))


def following(block: Block, outcome: Verified, params: SamplingParams) -> Block | None:
    """The round that follows by itself; None if the next token is a device's to draw, or there is to be none."""
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
    """All that a round behind which another one follows has added to what is committed."""
    assert outcome.next_token is not None, "nothing follows by itself what a device is to draw"
    return (*block.forced, *accepted_by(block, outcome), outcome.next_token)


def accepted_by(block: Block, outcome: Verified) -> tuple[int, ...]:
    """Draft tokens that a round has committed, whoever drafted them."""
    draft = block.draft if outcome.own_draft is None else outcome.own_draft.token_ids
    return tuple(map(draft.__getitem__, outcome.accepted_path))


def may_be_late(rule: AcceptanceRule) -> bool:
    """Whether the output is the target's own whatever is drafted: then it does not matter when a draft comes."""
    return rule in OWN_CHOICE_RULES


def still_open(draft: tuple[int, ...], committed: tuple[int, ...]) -> tuple[int, ...]:
    """What of a chain is undecided behind what was committed meanwhile: nothing if that is something else."""
    return draft[len(committed) :] if draft[: len(committed)] == committed else ()


def overtaken(block: Block, committed: tuple[int, ...]) -> Block:
    """A late block behind what was committed meanwhile. One that was drafted in vain asks for the target's token."""
    return replace(
        block,
        position=block.position + len(committed),
        prefix_hash=extend_prefix_hash(block.prefix_hash, committed),
        draft=still_open(block.draft, committed),
    )


def survivals_behind(survivals: tuple[float, ...], equal_tokens: int) -> tuple[float, ...]:
    """Of what is left of a chain, each token with all before it, now that so many at its front were right."""
    certain = survivals[equal_tokens - 1] if 0 < equal_tokens <= len(survivals) else 1.0
    return tuple(survival / certain for survival in survivals[equal_tokens:]) if certain else ()


def alone(block: Block) -> Block:
    """Of an autonomous run behind a block that was drafted: what its rounds have of that block."""
    return replace(block, forced=(), draft=()) if block.forced or block.draft else block


@dataclass(slots=True, eq=False)
class RunLog:
    """What an autonomous run has committed so far, the block before it included.

    Attributes:
        start: position of the first of ``token_ids``.
        prefix_hashes: of what is committed before each of them, and behind the last.
    """

    start: int
    token_ids: list[int]
    prefix_hashes: list[int]

    @classmethod
    def begin(cls, block: Block) -> "RunLog":
        """Nothing yet; ``block`` is the one before the autonomous run."""
        return cls(block.position, [], [block.prefix_hash])

    def went_on(self, block: Block, outcome: Verified) -> None:
        """A round was committed, and another one follows."""
        for token_id in committed_by(block, outcome):
            self.token_ids.append(token_id)
            self.prefix_hashes.append(extend_prefix_hash(self.prefix_hashes[-1], (token_id,)))

    def rebased(self, block: Block) -> Block | None:
        """A block that was made while the autonomous run went on, as it is worth now; None if it never fitted.

        The front of its draft that is committed already is dropped; all of it, if something else is. Only under rules
        by which the output is the target's own: else whether a draft is used must not depend on when it arrives.
        """
        behind = block.position - self.start
        if not 0 <= behind < len(self.prefix_hashes) or block.prefix_hash != self.prefix_hashes[behind]:
            return None
        committed = tuple(self.token_ids[behind:])
        if not committed:
            return block
        chain = block.parents is None and not block.forced and block.deferral is None
        return overtaken(block, committed) if chain and may_be_late(block.rule) else None
