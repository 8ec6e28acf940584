"""Stretches: a verifier goes on alone behind a block, one token a round, until it is called back.

A stretch's rounds are blocks like any others, without a draft and numbered on from the block's own. Whoever sent the
block counts along: it knows from the outcomes alone how far a stretch has come and whether it is over.
"""

from dataclasses import dataclass, replace

from outrider.contracts.prefix import extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, Block, Verified, target_rule


def goes_on(block: Block, outcome: Verified) -> bool:
    """Whether a round follows by itself the one with this outcome, which is ``block``'s or followed it.

    The stretch's credit is not looked at: that may be raised while the stretch waits for more.
    """
    stretch, after = block.stretch, outcome.next_token
    if stretch is None or after is None or after in stretch.end_ids:
        return False
    return not outcome.accepted_path or stretch.end_ids.isdisjoint(block.draft[i] for i in outcome.accepted_path)


def following(block: Block, outcome: Verified, params: SamplingParams) -> Block | None:
    """The round that follows by itself; None if the next token is a device's to draw, or there is to be none."""
    if not goes_on(block, outcome):
        return None
    assert outcome.next_token is not None
    committed = (*block.forced, *map(block.draft.__getitem__, outcome.accepted_path), outcome.next_token)
    return Block(
        generation=block.generation,
        round=block.round + 1,
        position=block.position + len(committed),
        prefix_hash=extend_prefix_hash(block.prefix_hash, committed),
        rule=target_rule(params),
        stretch=block.stretch,
    )


@dataclass(slots=True, eq=False)
class Trail:
    """What a stretch has committed so far.

    Attributes:
        start: position of the first of ``token_ids``.
        prefix_hashes: of what is committed before each of them, and behind the last.
    """

    start: int
    token_ids: list[int]
    prefix_hashes: list[int]

    @classmethod
    def begin(cls, block: Block) -> "Trail":
        """Nothing yet; ``block`` is its first round."""
        return cls(block.position, [], [block.prefix_hash])

    def went_on(self, following: Block, token_id: int) -> None:
        """One more token, before the round that follows."""
        self.token_ids.append(token_id)
        self.prefix_hashes.append(following.prefix_hash)

    def rebased(self, block: Block) -> Block | None:
        """A block that was made while the stretch went on, as it is worth now; None if it no longer fits.

        The front of its draft that is committed already is dropped. Only under rules by which the output is the
        target's own whatever is drafted: under any other, whether a draft is used must not depend on when it arrives.
        """
        behind = block.position - self.start
        if not 0 <= behind < len(self.prefix_hashes) or block.prefix_hash != self.prefix_hashes[behind]:
            return None
        committed = self.token_ids[behind:]
        if not committed:
            return block
        if not _may_be_late(block) or tuple(committed) != block.draft[: len(committed)]:
            return None
        return replace(
            block,
            position=block.position + len(committed),
            prefix_hash=self.prefix_hashes[-1],
            draft=block.draft[len(committed) :],
        )


def _may_be_late(block: Block) -> bool:
    whatever_is_drafted = block.rule in (AcceptanceRule.GREEDY, AcceptanceRule.SHARED_NOISE)
    return whatever_is_drafted and block.parents is None and not block.forced and block.deferral is None
