"""Whatever a drafter answers, it is told from what was asked for, and never raises."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, NeedsPrefix
from outrider.contracts.exchanged import (
    Candidates,
    CorrectionSource,
    DenseDraft,
    FloatRow,
    IntRow,
    ScalarDraft,
    SparseDraft,
    TargetRow,
)
from outrider.contracts.requests import ProtocolName
from outrider.session.answers import draft_fault

VOCAB = 97
ASKED = DraftRequest("g", 3, 10, (5, 6), 0, DraftPlan(ProtocolName.TOKEN_IDS, 4))
GOOD = Draft("g", 3, 12, (1, 0, 96))
CORRECTED = replace(ASKED, correction=Candidates(np.array([3]), np.ones(1, dtype=np.float32)))


@pytest.mark.parametrize("tokens", [(), (0,), (96, 0, 1, 2)], ids=str)
def test_a_block_up_to_the_window_is_good(tokens: tuple[int, ...]) -> None:
    assert draft_fault(replace(GOOD, token_ids=tokens), ASKED, VOCAB, greedy=False) is None


def test_an_empty_block_is_all_that_a_window_of_0_allows() -> None:
    prefill = replace(ASKED, plan=DraftPlan(ProtocolName.TOKEN_IDS, 0))
    assert draft_fault(replace(GOOD, token_ids=()), prefill, VOCAB, greedy=False) is None
    assert draft_fault(GOOD, prefill, VOCAB, greedy=False) == "needs at most 0 tokens, found 3"


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
    "a correction unasked": ({"correction": 5}, "needs no correction, found 5"),
    "a tree unasked": ({"parents": (-1, 0, 1)}, "needs a chain, found a tree of parents (-1, 0, 1)"),
    "rows unasked": ({"distribution": SparseDraft((), ())}, "needs a NoneType, found a SparseDraft"),
}


@pytest.mark.parametrize(("changes", "fault"), NONSENSE.values(), ids=NONSENSE.keys())
def test_a_fault_names_what_was_needed_and_found(changes: dict[str, Any], fault: str) -> None:
    found = draft_fault(replace(GOOD, **changes), ASKED, VOCAB, greedy=False)
    assert found is not None
    assert found.startswith(fault)
    assert len(found) < 100


@pytest.mark.parametrize("found", [None, 97, -1, 3.0, True, np.int64(3), Unspeakable()], ids=range(7))
def test_a_correction_that_was_asked_for_is_a_token(found: Any) -> None:
    assert draft_fault(replace(GOOD, correction=3), CORRECTED, VOCAB, greedy=False) is None
    fault = draft_fault(replace(GOOD, correction=found), CORRECTED, VOCAB, greedy=False)
    assert fault is not None
    assert fault.startswith("needs a correction in 0..96, found ")


@pytest.mark.parametrize(
    "source",
    [
        Candidates(np.array([3, 7, 3]), np.full(3, 0.5, dtype=np.float32)),
        TargetRow(np.array([3, 5, 7]), np.array([0.5, 0.0, 0.5], dtype=np.float32)),
        TargetRow(None, np.eye(VOCAB, dtype=np.float32)[3] + np.eye(VOCAB, dtype=np.float32)[7]),
    ],
    ids=["candidates", "sparse row", "dense row"],
)
def test_a_correction_is_one_the_target_could_have_said(source: CorrectionSource) -> None:
    request = replace(ASKED, correction=source)
    for token_id in (3, 7):
        assert draft_fault(replace(GOOD, correction=token_id), request, VOCAB, greedy=False) is None
    for token_id in (5, 0):
        fault = draft_fault(replace(GOOD, correction=token_id), request, VOCAB, greedy=False)
        assert fault == f"needs a correction the target could have said, found {token_id}"


def told_as(found: str | None, fault: str | None) -> bool:
    """Whether a fault begins as expected; no fault if none is."""
    return found is None if fault is None else found is not None and found.startswith(fault)


TREE = replace(ASKED, plan=DraftPlan(ProtocolName.TOKEN_IDS, 2, (2, 2)))
SHAPES: dict[str, tuple[Any, str | None]] = {
    "full": ((-1, -1, 0, 0, 1, 1), None),
    "one child fewer": ((-1, -1, 0, 1, 1), None),
    "one layer": ((-1, -1), None),
    "nothing": ((), None),
    "a chain": (None, "needs 6 parents, found None"),
    "a list": ([-1] * 6, "needs 6 parents, found [-1"),
    "too few": ((-1,) * 5, "needs 6 parents, found (-1, -1"),
    "not side by side": ((-1, -1, 0, 1, 0, 1), "needs a parent in 1..3 of node 4, found 0"),
    "its own parent": ((-1, 1, 1, 1, 1, 1), "needs a parent in -1..0 of node 1, found 1"),
    "before the prefix": ((-2, -1, 0, 0, 1, 1), "needs a parent in -1..-1 of node 0, found -2"),
    "a boolean": ((-1, False, 0, 0, 1, 1), "needs a parent in -1..0 of node 1, found False"),
    "an unspeakable parent": ((-1, Unspeakable(), 0, 0, 1, 1), "needs a parent in -1..0 of node 1, found a Unsp"),
    "too many roots": ((-1, -1, -1, 0, 0, 1), "needs at most 2 children of node -1, found 3"),
    "too many children": ((-1, -1, 0, 0, 0, 1), "needs at most 2 children of node 0, found 3"),
    "too deep": ((-1, -1, 0, 0, 2, 2), "needs at most 2 layers, found 3"),
}


@pytest.mark.parametrize(("parents", "fault"), SHAPES.values(), ids=SHAPES.keys())
def test_a_tree_has_the_shape_that_was_asked_for(parents: Any, fault: str | None) -> None:
    nodes = len(parents) if fault is None else 6
    found = draft_fault(replace(GOOD, token_ids=(1, 2, 3, 4, 5, 6)[:nodes], parents=parents), TREE, VOCAB, greedy=False)
    assert told_as(found, fault)


def row(*token_ids: int) -> IntRow:
    return np.array(token_ids, dtype=np.int64)


def logits(*values: float) -> FloatRow:
    return np.array(values, dtype=np.float32)


def dense(**changes: float) -> DenseDraft:
    """Rows for the tokens 1, 0, 96; ``t3=x`` changes the logit of token 3 in the last row."""
    values = np.zeros((3, VOCAB), dtype=np.float32)
    for name, value in changes.items():
        values[2, int(name[1:])] = value
    return DenseDraft(values)


INF, NAN, P = float("inf"), float("nan"), ProtocolName
SPARSE_ROWS, SPARSE_LOGITS = (row(1, 5), row(0), row(95, 96)), (logits(0, -3), logits(0), logits(-1, 0))
TOLD: dict[str, tuple[ProtocolName, Any, str | None]] = {
    "dense": (P.DSD, dense(), None),
    "dense, truncated": (P.DSD, dense(t3=-INF), None),
    "nothing for dense": (P.DSD, None, "needs a DenseDraft, found a NoneType"),
    "scalars for dense": (P.DSD, ScalarDraft(row(1, 1, 1), 8), "needs a DenseDraft, found a ScalarDraft"),
    "dense of two rows": (P.DSD, DenseDraft(dense().logits[:2]), "needs logits of shape (3, 97), found (2, 97)"),
    "dense as float64": (P.DSD, DenseDraft(np.zeros((3, VOCAB))), "needs logits of shape (3, 97), found (3, 97)"),  # type: ignore[arg-type]
    "dense with NaN": (P.DSD, dense(t3=NAN), "needs logits below infinity"),
    "dense with +inf": (P.DSD, dense(t3=INF), "needs logits below infinity"),
    "dense without the token": (P.DSD, dense(t96=-INF), "needs tokens drawn from their rows, found 96"),
    "dense with an underflow": (P.DSD, dense(t3=1e3), "needs tokens drawn from their rows, found 96"),
    "scalars": (P.DSSD, ScalarDraft(row(1, 256, 7), 8), None),
    "scalars of 0": (P.DSSD, ScalarDraft(row(1, 0, 7), 8), "needs numerators in 1..256, found [1, 0, 7]"),
    "scalars above 1": (P.DSSD_CANDIDATES, ScalarDraft(row(1, 257, 7), 8), "needs numerators in 1..256"),
    "scalars of 64 bits": (P.DSSD, ScalarDraft(row(1, 1, 7), 64), "needs 8..32 bits, found 64"),
    "two scalars": (P.DSSD, ScalarDraft(row(1, 1), 8), "needs 3 numerators, found array([1, 1])"),
    "scalars as a list": (P.DSSD, ScalarDraft([1, 1, 1], 8), "needs 3 numerators, found [1, 1, 1]"),  # type: ignore[arg-type]
    "sparse": (P.TSLT, SparseDraft(SPARSE_ROWS, SPARSE_LOGITS), None),
    "nothing for sparse": (P.TSLT, None, "needs a SparseDraft, found a NoneType"),
    "two rows": (P.TSLT, SparseDraft(SPARSE_ROWS[:2], SPARSE_LOGITS[:2]), "needs 3 rows, found (array"),
    "no rows at all": (P.TSLT, SparseDraft(None, SPARSE_LOGITS), "needs 3 rows, found None"),  # type: ignore[arg-type]
    "an empty row": (P.TSLT, SparseDraft((row(), *SPARSE_ROWS[1:]), SPARSE_LOGITS), "needs a row of token ids"),
    "a row that descends": (P.TSLT, SparseDraft((row(5, 1), *SPARSE_ROWS[1:]), SPARSE_LOGITS), "needs ascending"),
    "an id behind": (P.TSLT, SparseDraft((row(1, 97), *SPARSE_ROWS[1:]), SPARSE_LOGITS), "needs ascending token ids"),
    "a removed token": (
        P.TSLT,
        SparseDraft(SPARSE_ROWS, (logits(0, -INF), *SPARSE_LOGITS[1:])),
        "needs 2 finite logits",
    ),
    "one logit": (P.TSLT, SparseDraft(SPARSE_ROWS, (logits(0), *SPARSE_LOGITS[1:])), "needs 2 finite logits"),
    "a token of no row": (P.TSLT, SparseDraft((row(2, 5), *SPARSE_ROWS[1:]), SPARSE_LOGITS), "needs tokens drawn from"),
    "a token too unlikely": (
        P.TSLT,
        SparseDraft(SPARSE_ROWS, (logits(-1e3, 0), *SPARSE_LOGITS[1:])),
        "needs tokens drawn from their rows, found 1",
    ),
}


@pytest.mark.parametrize(("protocol", "told", "fault"), TOLD.values(), ids=TOLD.keys())
def test_rows_are_those_the_protocol_sends(protocol: ProtocolName, told: Any, fault: str | None) -> None:
    request = replace(ASKED, plan=DraftPlan(protocol, 4))
    assert told_as(draft_fault(replace(GOOD, distribution=told), request, VOCAB, greedy=False), fault)


def test_a_tree_has_one_row_for_each_node_with_children() -> None:
    request = replace(ASKED, plan=DraftPlan(P.TSLT_TREE, 2, (2, 2)))
    draft = replace(GOOD, token_ids=(1, 5, 0, 95, 96), parents=(-1, -1, 0, 1, 1))
    told = SparseDraft(SPARSE_ROWS, SPARSE_LOGITS)
    assert draft_fault(replace(draft, distribution=told), request, VOCAB, greedy=False) is None
    assert draft_fault(replace(draft, distribution=None), request, VOCAB, greedy=True) is None
    fault = draft_fault(replace(draft, distribution=None), request, VOCAB, greedy=False)
    assert fault == "needs a SparseDraft, found a NoneType", "only a greedy tree is drawn from nothing"
    swapped = replace(draft, distribution=told, parents=(-1, -1, 0, 0, 0))
    assert draft_fault(swapped, request, VOCAB, greedy=False) == "needs at most 2 children of node 0, found 3"
    one_less = replace(draft, distribution=told, parents=(-1, -1, 1, 1), token_ids=(1, 5, 95, 96))
    assert (draft_fault(one_less, request, VOCAB, greedy=False) or "").startswith("needs 2 rows")


@pytest.mark.parametrize("answer", ["a draft", None, 7, {"token_ids": (1,)}, NeedsPrefix("g", 3), Draft], ids=repr)
def test_something_else_than_a_draft_is_named(answer: object) -> None:
    assert (
        draft_fault(answer, ASKED, VOCAB, greedy=False)
        == f"needs to answer with a draft, found a {type(answer).__name__}"
    )


@pytest.mark.parametrize("fields", range(4))
def test_a_draft_of_another_version_may_lack_fields(fields: int) -> None:
    draft = object.__new__(Draft)
    for name in ("generation", "round", "position")[:fields]:
        object.__setattr__(draft, name, getattr(GOOD, name))
    assert (draft_fault(draft, ASKED, VOCAB, greedy=False) or "").startswith("needs ")


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
    st.none() | ANYTHING,
    st.none() | st.lists(st.integers(-1, 4) | ANYTHING, max_size=5).map(tuple) | ANYTHING,
    st.none() | st.builds(SparseDraft, ANYTHING, ANYTHING) | st.builds(ScalarDraft, ANYTHING, ANYTHING) | ANYTHING,
    ANYTHING,
    ANYTHING,
)


@given(answer=NEARLY | ANYTHING, protocol=st.sampled_from(ProtocolName), expansion=st.sampled_from([(), (2, 2)]))
def test_whatever_is_let_through_is_what_was_asked_for(
    answer: object, protocol: ProtocolName, expansion: tuple[int, ...]
) -> None:
    fault = draft_fault(answer, replace(ASKED, plan=DraftPlan(protocol, 2, expansion)), VOCAB, greedy=False)
    if fault is not None:
        assert fault.startswith("needs ")
        return
    assert isinstance(answer, Draft)
    assert (answer.generation, answer.round, answer.position) == ("g", 3, 12)
    assert len(answer.token_ids) <= (6 if expansion else 2)
    assert (answer.parents is None) == (not expansion)
    assert answer.correction is None
    assert all(type(token_id) is int and 0 <= token_id < VOCAB for token_id in answer.token_ids)
