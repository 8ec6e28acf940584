"""Semantic acceptance: greedy verification in which a judge may accept mismatches. Lossy, so only by permission.

A draft token is a *mismatch* where it differs from the target's argmax after the draft tokens before it. For each
mismatch the judge gets the hidden state that the drafter chose the token from, the target's at the same row, and the
link state. All mismatches before the first one it rejects are accepted; there the target's token is returned. If none
is rejected, the whole block is committed, and the target's next token if one is wanted. A judge that rejects everything
gives greedy verification. Source: WISV, equations 23-27 and its two protocols: full-hidden upload (the drafter's states
come with the block) and selective-hidden upload (they are requested at the mismatches). Both use this decision.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import Protocol

import numpy as np

from outrider.contracts.errors import ShapeError
from outrider.contracts.exchanged import ArrayData, FloatRow
from outrider.contracts.link import Csi
from outrider.events import event
from outrider.verification.decision import BlockDecision

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class MismatchQuestion(ArrayData):
    """The mismatches of one block, M of them."""

    # ``[M, drafter_width]`` float32, finite, M >= 1: final hidden state of the row from which the drafter chose the
    # token, as decoded from the message
    drafter_hidden: FloatRow
    target_hidden: FloatRow  # ``[M, d_target]`` float32: the target's final-norm hidden state at that row
    channel: Csi | None  # link state; None: not known


class MismatchJudge(Protocol):
    """Decides which mismatches are accepted. Pure: an answer does not depend on other questions of the batch."""

    @property
    def drafter_width(self) -> int:
        """Length of a drafter's hidden state; what a device sends is checked against it."""

    def accepts(self, questions: Sequence[MismatchQuestion]) -> Sequence[Sequence[bool]]:
        """Return whether each mismatch of each block may be accepted, regardless of those before it."""


def judged(judge: MismatchJudge, questions: Sequence[MismatchQuestion]) -> list[Sequence[bool]]:
    """Return a judge's answers. If it raises, ask block by block; a block for which it raises again is rejected."""
    try:
        answers = _checked(judge.accepts(questions), questions) if questions else []
    except Exception as error:  # noqa: BLE001 (only the block that causes it must suffer)
        if len(questions) == 1:
            event(_LOG, "judge_failed", logging.ERROR, reason=f"{type(error).__name__}: {error}")
            return [[False] * len(questions[0].drafter_hidden)]
        return [answer for question in questions for answer in judged(judge, [question])]
    return answers


def _checked(answers: Sequence[Sequence[bool]], questions: Sequence[MismatchQuestion]) -> list[Sequence[bool]]:
    needed, found = [len(one.drafter_hidden) for one in questions], [len(one) for one in answers]
    if found != needed:
        raise ShapeError(f"a judge needs to answer for blocks of {needed} mismatches, found {found} answers")
    return list(answers)


def mismatches(choices: Sequence[int], draft: Sequence[int]) -> tuple[int, ...]:
    """Return the indices where a chain of K tokens differs from the target's choices at its first K rows."""
    return tuple(i for i, (choice, token_id) in enumerate(zip(choices, draft, strict=False)) if choice != token_id)


def semantic_decision(
    choices: Sequence[int], draft: Sequence[int], accepted: Sequence[bool], *, bonus: bool
) -> BlockDecision:
    """Decide a chain.

    Args:
        choices: the target's argmax at each row, K or, with a bonus token, K + 1.
        draft: K tokens.
        accepted: the judge's answer for each of ``mismatches(choices, draft)``.
        bonus: whether to return the choice after a wholly accepted draft.
    """
    if len(choices) not in (len(draft), len(draft) + 1) or len(choices) < len(draft) + bonus:
        raise ShapeError(f"a draft of {len(draft)} tokens needs {len(draft) + bonus} choices, found {len(choices)}")
    found = mismatches(choices, draft)
    if len(accepted) != len(found):
        raise ShapeError(f"{len(found)} mismatches need as many answers of the judge, found {len(accepted)}")
    passed = tuple(at for at, _ in takewhile(itemgetter(1), zip(found, accepted, strict=True)))
    if len(passed) < len(found):
        rejected = found[len(passed)]
        return BlockDecision(tuple(range(rejected)), choices[rejected], overrides=passed)
    return BlockDecision(tuple(range(len(draft))), choices[len(draft)] if bonus else None, overrides=passed)


def hidden_fault(hidden: FloatRow, count: int, width: int) -> str | None:
    """Return what is wrong with a device's hidden states; None if nothing is."""
    if hidden.dtype != np.float32 or hidden.shape != (count, width):
        found = f"{list(hidden.shape)} {hidden.dtype}"
        return f"needs drafter hidden states of shape {[count, width]} float32, found {found}; send one for each"
    if not np.isfinite(hidden).all():
        return "needs finite drafter hidden states, found one that is not; send them in a wider number format"
    return None
