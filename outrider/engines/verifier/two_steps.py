"""Semantic rounds that wait for the drafter's hidden states.

An ``OpenRound`` is all that the rest of a decision needs, in host memory: its resolution runs nothing, and what becomes
of the KV meanwhile is of no consequence to it. A generation has one at most.
"""

from dataclasses import dataclass

from outrider.contracts.exchanged import FloatRow
from outrider.contracts.link import Csi
from outrider.contracts.requests import TokenLogprobs
from outrider.contracts.verifying import AcceptanceRule, Block, Undecided
from outrider.verification.decision import BlockDecision
from outrider.verification.semantic import MismatchJudge, semantic_decision


def wants_hidden(block: Block) -> bool:
    """Whether the target's hidden states are needed at the block's own rows."""
    return block.rule is AcceptanceRule.SEMANTIC


@dataclass(frozen=True, slots=True, eq=False)
class OpenRound:
    """A semantic round with mismatches, computed but for the judge's answer."""

    block: Block  # of the round; a chain
    choices: tuple[int, ...]  # the target's argmax at each row
    mismatches: tuple[int, ...]  # indices into ``Block.draft``; at least one
    target_hidden: FloatRow  # ``[M, d]`` float32, the target's state at the row that predicts each mismatch
    logprobs: tuple[TokenLogprobs, ...] = ()  # of ``asked_tokens``; empty unless asked for

    @property
    def undecided(self) -> Undecided:
        """What is asked of the device."""
        return Undecided(self.block.generation, self.block.round, self.mismatches)

    @property
    def nbytes(self) -> int:
        """Memory of the hidden states."""
        return self.target_hidden.nbytes

    def asked_tokens(self) -> list[tuple[int, int]]:
        """Row and token of all that may be committed: the draft, then what may follow each part of it that can."""
        draft = self.block.draft
        after = [*self.mismatches, *range(len(draft), len(self.choices))]
        return [*enumerate(draft), *((row, self.choices[row]) for row in after)]

    def decide(self, judge: MismatchJudge, hidden: FloatRow | None, channel: Csi | None) -> BlockDecision:
        """The decision, given ``[M, d]`` drafter hidden states at the mismatches; without them all are rejected."""
        rejected = [False] * len(self.mismatches)
        accepted = rejected if hidden is None else judge.accepts(hidden, self.target_hidden, channel)
        return semantic_decision(self.choices, self.block.draft, accepted, bonus=self.block.bonus)

    def logprobs_of(self, decision: BlockDecision) -> tuple[TokenLogprobs, ...]:
        """Of the tokens it commits, if they were asked for."""
        rows = [row for row, _ in self.asked_tokens()]
        drafted = len(self.block.draft)
        entries = list(zip(rows, self.logprobs, strict=False))
        accepted = [entry for _, entry in entries[: decision.accepted_len]]
        after = [entry for row, entry in entries[drafted:] if row == decision.accepted_len]
        return (*accepted, *after) if decision.token_after is not None else tuple(accepted)
