"""Semantic rounds that wait for the drafter's hidden states at their mismatches.

A ``PendingSemanticRound`` holds all that the decision needs, in host memory: its resolution runs no forward pass and is
independent of the KV, which may be evicted meanwhile. A generation has at most one.
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
    """A computed semantic round with mismatches that lacks the judge's answers."""

    block: Block  # of the round; a chain
    choices: tuple[int, ...]  # the target's argmax at each row
    mismatches: tuple[int, ...]  # indices into ``Block.draft``; at least one
    target_hidden: FloatRow  # ``[M, d]`` float32, the target's state at the row that predicts each mismatch
    judged: int  # leading draft tokens that the grammar allows; the token after them is rejected in any case
    logprobs: tuple[TokenLogprobs, ...] = ()  # of ``asked_tokens``, in that order; empty unless asked for

    @property
    def undecided(self) -> Undecided:
        return Undecided(self.block.generation, self.block.round, self.mismatches)

    def asked_tokens(self) -> list[tuple[int, int]]:
        """Return row and token of all that may be committed: draft tokens, then each possible correction or bonus."""
        draft = self.may_pass
        after = [*self.mismatches, *range(len(draft), len(self._choices))]
        return [*enumerate(draft), *((row, self.choices[row]) for row in after)]

    def question(self, hidden: FloatRow) -> MismatchQuestion:
        return MismatchQuestion(hidden, self.target_hidden, self.block.channel)

    def decide(self, accepted: Sequence[bool] | None) -> BlockDecision:
        """Decide the round by the judge's answers; None rejects all mismatches."""
        answers = [False] * len(self.mismatches) if accepted is None else accepted
        return semantic_decision(self._choices, self.may_pass, answers, bonus=self._bonus)

    @property
    def may_pass(self) -> tuple[int, ...]:
        """Draft tokens that the judge may accept: those that the grammar allows."""
        return self.block.draft[: self.judged]

    @property
    def _bonus(self) -> bool:
        """Whether a token is committed after ``may_pass``: a bonus, or a correction of what the grammar forbids."""
        return self.block.bonus or self.judged < len(self.block.draft)

    @property
    def _choices(self) -> tuple[int, ...]:
        return self.choices[: self.judged + self._bonus]

    def logprobs_of(self, decision: BlockDecision) -> tuple[TokenLogprobs, ...]:
        """Return the log-probabilities of the tokens that a decision commits, if they were asked for."""
        rows = [row for row, _ in self.asked_tokens()]
        drafted = self.judged
        entries = list(zip(rows, self.logprobs, strict=False))
        accepted = [entry for _, entry in entries[: decision.accepted_len]]
        after = [entry for row, entry in entries[drafted:] if row == decision.accepted_len]
        return (*accepted, *after) if decision.token_after is not None else tuple(accepted)


def decide_open(
    rounds: Sequence[tuple[PendingSemanticRound, FloatRow | None]], judges: Mapping[str, MismatchJudge]
) -> list[BlockDecision]:
    """Decide rounds with their devices' hidden states; each judge is called once, for all of its rounds."""
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
