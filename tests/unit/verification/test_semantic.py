"""The semantic rule against its definition, for any chain and any judge."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ShapeError
from outrider.verification.decision import BlockDecision
from outrider.verification.matching import match
from outrider.verification.semantic import MismatchQuestion, hidden_fault, judged, mismatches, semantic_decision

tokens = st.integers(0, 2)


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[int], list[int], bool]:
    """Choices, draft, and whether a bonus token is wanted; without one there may be a choice for it all the same."""
    draft = draw(st.lists(tokens, max_size=6))
    bonus = draw(st.booleans())
    rows = len(draft) + (1 if bonus else draw(st.integers(0, 1)))
    return draw(st.lists(tokens, min_size=rows, max_size=rows)), draft, bonus


@given(chain=chains(), data=st.data())
def test_what_is_committed_is_the_draft_up_to_the_first_mismatch_that_does_not_pass(
    chain: tuple[list[int], list[int], bool], data: st.DataObject
) -> None:
    choices, draft, bonus = chain
    differing = [i for i in range(len(draft)) if draft[i] != choices[i]]
    assert list(mismatches(choices, draft)) == differing
    passes = data.draw(st.lists(st.booleans(), min_size=len(differing), max_size=len(differing)))
    decision = semantic_decision(choices, draft, passes, bonus=bonus)
    kept = len(decision.path)
    assert decision.path == tuple(range(kept))
    assert decision.deferred is None
    allowed = dict(zip(differing, passes, strict=True))
    assert all(allowed.get(i, True) for i in range(kept)), "all before the end are matches, or pass"
    assert decision.overrides == tuple(i for i in differing if i < kept), "and those that passed are told"
    if kept < len(draft):
        assert not allowed[kept], "it ends at a mismatch that does not pass,"
        assert decision.token_after == choices[kept] != draft[kept], "with the target's token there"
    else:
        assert decision.token_after == (choices[kept] if bonus else None)


@given(chain=chains())
def test_a_judge_that_rejects_everything_is_greedy_verification(chain: tuple[list[int], list[int], bool]) -> None:
    choices, draft, bonus = chain
    passes = [False] * len(mismatches(choices, draft))
    assert semantic_decision(choices, draft, passes, bonus=bonus) == match(choices, draft, bonus=bonus)


def test_one_by_hand() -> None:
    choices, draft = [4, 5, 6, 7], [4, 8, 9]
    assert mismatches(choices, draft) == (1, 2)
    assert semantic_decision(choices, draft, [True, True], bonus=True) == BlockDecision((0, 1, 2), 7, overrides=(1, 2))
    assert semantic_decision(choices, draft, [True, True], bonus=False) == BlockDecision(
        (0, 1, 2), None, overrides=(1, 2)
    )
    assert semantic_decision(choices, draft, [True, False], bonus=False) == BlockDecision((0, 1), 6, overrides=(1,))
    assert semantic_decision(choices, draft, [False, True], bonus=True) == BlockDecision((0,), 5)


def test_other_numbers_of_choices_or_answers_are_named() -> None:
    with pytest.raises(ShapeError, match="2 tokens needs 3 choices, found 2"):
        semantic_decision([1, 2], [1, 2], [], bonus=True)
    with pytest.raises(ShapeError, match="2 tokens needs 2 choices, found 1"):
        semantic_decision([1], [1, 2], [], bonus=False)
    with pytest.raises(ShapeError, match="1 mismatches need as many answers of the judge, found 2"):
        semantic_decision([1, 2], [1, 3], [True, True], bonus=False)


@pytest.mark.parametrize(
    ("hidden", "reason"),
    [
        (np.zeros((2, 3), np.float32), None),
        (np.zeros((1, 3), np.float32), "[2, 3] float32, found [1, 3] float32"),
        (np.zeros((2, 4), np.float32), "found [2, 4] float32"),
        (np.zeros(6, np.float32), "found [6] float32"),
        (np.zeros((2, 3)), "found [2, 3] float64"),
        (np.array([[0, 0, 0], [0, np.inf, 0]], np.float32), "finite"),
        (np.full((2, 3), np.nan, np.float32), "finite"),
    ],
)
def test_what_a_device_sends_is_checked(
    hidden: np.ndarray[tuple[int, ...], np.dtype[np.float32]], reason: str | None
) -> None:
    found = hidden_fault(hidden, 2, 3)
    assert found is None if reason is None else reason in (found or "")


def question(first: float, count: int) -> MismatchQuestion:
    """Of so many mismatches; its first number tells it from others."""
    return MismatchQuestion(np.full((count, 3), first, np.float32), np.zeros((count, 2), np.float32), None)


@dataclass
class Moody:
    """Lets all pass; fails, or answers for one mismatch too few, where a question begins with that number."""

    fails_at: float = -1.0
    short_at: float = -1.0

    drafter_width = 3

    def accepts(self, questions: Sequence[MismatchQuestion]) -> list[list[bool]]:
        firsts = [float(one.drafter_hidden[0, 0]) for one in questions]
        if self.fails_at in firsts:
            raise RuntimeError("a moody judge")
        counts = [len(one.drafter_hidden) for one in questions]
        return [[True] * (count - (first == self.short_at)) for count, first in zip(counts, firsts, strict=True)]


@pytest.mark.parametrize("judge", [Moody(fails_at=2.0), Moody(short_at=2.0)])
def test_a_judge_that_fails_at_a_block_rejects_its_mismatches_and_no_others(
    judge: Moody, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [question(1.0, 2), question(2.0, 3), question(3.0, 1)]
    assert judged(judge, asked) == [[True, True], [False] * 3, [True]]
    assert [record.getMessage() for record in caplog.records].count("judge_failed") == 1
    assert judged(judge, []) == []
