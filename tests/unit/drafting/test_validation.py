"""Whatever a drafter answers, it is told from what was asked for, and never raises."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafting.validation import draft_fault
from outrider.engines.base import AcceptanceRule, Draft, DraftRequest, NeedsPrefix

VOCAB = 97
ASKED = DraftRequest("g", 3, 10, (5, 6), 0, window=4, rule=AcceptanceRule.GREEDY)
GOOD = Draft("g", 3, 12, (1, 0, 96), ())


@pytest.mark.parametrize("tokens", [(), (0,), (96, 0, 1, 2)], ids=str)
def test_a_block_up_to_the_window_is_good(tokens: tuple[int, ...]) -> None:
    assert draft_fault(replace(GOOD, token_ids=tokens), ASKED, VOCAB) is None


def test_an_empty_block_is_all_that_a_window_of_0_allows() -> None:
    prefill = replace(ASKED, window=0)
    assert draft_fault(replace(GOOD, token_ids=()), prefill, VOCAB) is None
    assert draft_fault(GOOD, prefill, VOCAB) == "needs at most 0 tokens, found 3"


class Unspeakable:
    """Nothing can be asked of it."""

    def __repr__(self) -> str:
        """Refuse."""
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        """Refuse."""
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


NONSENSE: dict[str, tuple[dict[str, Any], str]] = {
    "another generation": ({"generation": "h"}, "needs generation g, found 'h'"),
    "no name": ({"generation": None}, "needs generation g, found None"),
    "a long name": ({"generation": "h" * 500}, f"needs generation g, found '{'h' * 39}"),
    "several names": ({"generation": np.array(["g", "g"])}, "needs generation g, found array(['g', 'g'], dtype='<U1')"),
    "another round": ({"round": 4}, "needs round 3, found 4"),
    "a round as a float": ({"round": 3.0}, "needs round 3, found 3.0"),
    "an older position": ({"position": 10}, "needs position 12, found 10"),
    "a position as an array": ({"position": np.arange(12)}, "needs position 12, found array([ 0,"),
    "an unspeakable position": ({"position": Unspeakable()}, "needs position 12, found a Unspeakable"),
    "too many tokens": ({"token_ids": (1,) * 5}, "needs at most 4 tokens, found 5"),
    "a list": ({"token_ids": [1, 2]}, "needs a tuple of token ids, found a list"),
    "an array": ({"token_ids": np.array([1, 2])}, "needs a tuple of token ids, found a ndarray"),
    "a text": ({"token_ids": "12"}, "needs a tuple of token ids, found a str"),
    "no tokens at all": ({"token_ids": None}, "needs a tuple of token ids, found a NoneType"),
    "an id behind the vocabulary": ({"token_ids": (1, 97)}, "needs token ids in 0..96, found 97"),
    "a negative id": ({"token_ids": (-1,)}, "needs token ids in 0..96, found -1"),
    "a float": ({"token_ids": (1, 2.0)}, "needs token ids in 0..96, found 2.0"),
    "not a number": ({"token_ids": (float("nan"),)}, "needs token ids in 0..96, found nan"),
    "a boolean": ({"token_ids": (True,)}, "needs token ids in 0..96, found True"),
    "a string": ({"token_ids": ("1",)}, "needs token ids in 0..96, found '1'"),
    "an integer of numpy": ({"token_ids": (np.int64(1),)}, "needs token ids in 0..96, found np.int64(1)"),
    "an integer of many digits": ({"token_ids": (10**5000,)}, "needs token ids in 0..96, found a int"),
    "an unspeakable id": ({"token_ids": (Unspeakable(),)}, "needs token ids in 0..96, found a Unspeakable"),
}


@pytest.mark.parametrize(("changes", "fault"), NONSENSE.values(), ids=NONSENSE.keys())
def test_a_fault_names_what_was_needed_and_found(changes: dict[str, Any], fault: str) -> None:
    found = draft_fault(replace(GOOD, **changes), ASKED, VOCAB)
    assert found is not None
    assert found.startswith(fault)
    assert len(found) < 100


@pytest.mark.parametrize("answer", ["a draft", None, 7, {"token_ids": (1,)}, NeedsPrefix("g", 3), Draft], ids=repr)
def test_something_else_than_a_draft_is_named(answer: object) -> None:
    assert draft_fault(answer, ASKED, VOCAB) == f"needs to answer with a draft, found a {type(answer).__name__}"


@pytest.mark.parametrize("fields", range(4))
def test_a_draft_of_another_version_may_lack_fields(fields: int) -> None:
    draft = object.__new__(Draft)
    for name in ("generation", "round", "position")[:fields]:
        object.__setattr__(draft, name, getattr(GOOD, name))
    assert (draft_fault(draft, ASKED, VOCAB) or "").startswith("needs ")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.lists(inner, max_size=5).map(tuple) | st.tuples(inner),
    max_leaves=6,
)
NEARLY = st.builds(
    Draft,
    st.just("g") | ANYTHING,
    st.just(3) | ANYTHING,
    st.just(12) | ANYTHING,
    st.lists(st.integers(-1, VOCAB) | ANYTHING, max_size=5).map(tuple) | ANYTHING,
    ANYTHING,
    ANYTHING,
)


@given(answer=NEARLY | ANYTHING)
def test_whatever_is_let_through_is_what_was_asked_for(answer: object) -> None:
    fault = draft_fault(answer, ASKED, VOCAB)
    if fault is not None:
        assert fault.startswith("needs ")
        return
    assert isinstance(answer, Draft)
    assert (answer.generation, answer.round, answer.position) == ("g", 3, 12)
    assert len(answer.token_ids) <= ASKED.window
    assert all(type(token_id) is int and 0 <= token_id < VOCAB for token_id in answer.token_ids)
