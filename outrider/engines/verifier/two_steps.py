"""Semantic rounds that wait for the drafter's hidden states.

A ``PendingSemanticRound`` is all that the rest of a decision needs, in host memory: its resolution runs nothing, and
what becomes of the KV meanwhile is of no consequence to it. A generation has one at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.contracts.exchanged import FloatRow
from outrider.contracts.requests import TokenLogprobs
from outrider.contracts.verifying import AcceptanceRule, Block, Undecided
from outrider.verification.decision import BlockDecision
from outrider.verification.semantic import MismatchJudge, MismatchQuestion, judged, semantic_decision


def wants_hidden(block: Block) -> bool:
    """Whether the target's hidden states are needed at the block's own rows."""
    return block.rule is AcceptanceRule.SEMANTIC


@dataclass(frozen=True, slots=True, eq=False)
class PendingSemanticRound:
    """A semantic round with mismatches, computed but for the judge's answer."""

    block: Block  # of the round; a chain
    choices: tuple[int, ...]  # the target's argmax at each row
    mismatches: tuple[int, ...]  # indices into ``Block.draft``; at least one
    target_hidden: FloatRow  # ``[M, d]`` float32, the target's state at the row that predicts each mismatch
    judged: int  # leading tokens of the draft that may pass; the one behind them, if any, is rejected whatever it is
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
        draft = self.may_pass
        after = [*self.mismatches, *range(len(draft), len(self._choices))]
        return [*enumerate(draft), *((row, self.choices[row]) for row in after)]

    def question(self, hidden: FloatRow) -> MismatchQuestion:
        """What the judge is asked, given ``[M, d]`` drafter hidden states at the mismatches."""
        return MismatchQuestion(hidden, self.target_hidden, self.block.channel)

    def decide(self, accepted: Sequence[bool] | None) -> BlockDecision:
        """The decision, given the judge's answers; without them all mismatches are rejected."""
        answers = [False] * len(self.mismatches) if accepted is None else accepted
        return semantic_decision(self._choices, self.may_pass, answers, bonus=self._bonus)

    @property
    def may_pass(self) -> tuple[int, ...]:
        """Of the draft, what is not rejected whatever a judge says."""
        return self.block.draft[: self.judged]

    @property
    def _bonus(self) -> bool:
        """Whether the choice behind all that may pass counts."""
        return self.block.bonus or self.judged < len(self.block.draft)

    @property
    def _choices(self) -> tuple[int, ...]:
        return self.choices[: self.judged + self._bonus]

    def logprobs_of(self, decision: BlockDecision) -> tuple[TokenLogprobs, ...]:
        """Of the tokens it commits, if they were asked for."""
        rows = [row for row, _ in self.asked_tokens()]
        drafted = self.judged
        entries = list(zip(rows, self.logprobs, strict=False))
        accepted = [entry for _, entry in entries[: decision.accepted_len]]
        after = [entry for row, entry in entries[drafted:] if row == decision.accepted_len]
        return (*accepted, *after) if decision.token_after is not None else tuple(accepted)


def decide_open(
    rounds: Sequence[tuple[PendingSemanticRound, FloatRow | None]], judges: Mapping[str, MismatchJudge]
) -> list[BlockDecision]:
    """The decision of each, given what its device sent: every judge is asked once for all of its rounds."""
    answers: list[Sequence[bool] | None] = [None] * len(rounds)
    by_judge: dict[str, list[tuple[int, MismatchQuestion]]] = {}
    for index, (open_round, hidden) in enumerate(rounds):
        if hidden is not None:
            by_judge.setdefault(open_round.block.judge, []).append((index, open_round.question(hidden)))
    for name, asked in by_judge.items():
        given = judged(judges[name], [question for _, question in asked])
        for (index, _), answer in zip(asked, given, strict=True):
            answers[index] = answer
    return [open_round.decide(answer) for (open_round, _), answer in zip(rounds, answers, strict=True)]
