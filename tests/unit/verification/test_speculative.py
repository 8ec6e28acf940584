"""The ratio rule decides as its algorithm says with the documented noise, whatever stands in the batch."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contracts.errors import ShapeError, UnsupportedBlockError
from outrider.contracts.exchanged import (
    Candidates,
    Deferral,
    DenseDraft,
    DraftDistribution,
    FloatField,
    FloatRow,
    ScalarDraft,
    SparseDraft,
    TargetRow,
)
from outrider.contracts.verifying import Block
from outrider.sampling.device_tensors import everywhere_at_once
from outrider.sampling.distributions import softmax
from outrider.sampling.noise import Purpose, uniforms
from outrider.verification.correction import draw_correction
from outrider.verification.decision import BlockDecision
from outrider.verification.ratio_block import RatioBlock, rows_of
from outrider.verification.speculative import verify_ratio
from tests.unit.verification import oracle

VOCAB = 5


def sent(form: type, inner: list[int], nodes: int, rng: np.random.Generator) -> DraftDistribution:
    """A random distribution of one form, with a row for each of ``inner``."""
    if form is ScalarDraft:
        return ScalarDraft(rng.integers(1, 257, nodes), 8)
    logits = rng.normal(scale=2.0, size=(len(inner), VOCAB)).astype(np.float32)
    if form is DenseDraft:
        logits[:, 1] = -np.inf
        return DenseDraft(logits)
    kept = [np.sort(rng.choice(VOCAB, size=int(rng.integers(2, VOCAB + 1)), replace=False)) for _ in inner]
    return SparseDraft(tuple(kept), tuple(row[ids] for row, ids in zip(logits, kept, strict=True)))


@st.composite
def cases(draw_case: st.DrawFn) -> tuple[RatioBlock, FloatRow, list[int]]:
    """A block, its target rows and the target's own choices."""
    rng = np.random.default_rng(draw_case(st.integers(0, 2**32)))
    form = draw_case(st.sampled_from([SparseDraft, SparseDraft, DenseDraft, ScalarDraft]))
    tree = form is SparseDraft and draw_case(st.booleans())
    nodes = draw_case(st.integers(0, 6 if tree else 3))
    parents = tuple(int(rng.integers(-1, min(node, 2))) for node in range(nodes)) if tree else None
    deferral = None
    if form is ScalarDraft or (not tree and draw_case(st.booleans())):
        fields = [FloatField.FP32, FloatField.FP16, FloatField.BF16]
        deferral = Deferral(draw_case(st.sampled_from(fields)), draw_case(st.sampled_from([0, 3])))
    inner = list(range(nodes)) if parents is None else sorted(set(parents))
    distribution = sent(form, inner, nodes, rng)
    distinct = tree and draw_case(st.booleans())
    block = RatioBlock(
        draft=tuple(rng.integers(0, VOCAB, nodes).tolist()),
        parents=parents,
        distribution=distribution,
        distinct=distinct,
        bonus=draw_case(st.booleans()),
        deferral=deferral,
        seed=draw_case(st.integers(0, 2**64 - 1)),
        position=draw_case(st.integers(0, 1000)),
    )
    rows = rng.normal(scale=2.0, size=(rows_of(block), VOCAB))
    rows[rng.random(rows.shape) < 0.2] = -np.inf
    rows[:, 0] = 0.0
    target = softmax(rows).astype(np.float32) if len(rows) else np.zeros((0, VOCAB), dtype=np.float32)
    return block, target, rng.integers(0, VOCAB, len(rows)).tolist()


def whole(decision: BlockDecision) -> BlockDecision:
    """The same with the whole row in place of a sparse one."""
    if not isinstance(decision.deferred, TargetRow) or decision.deferred.token_ids is None:
        return decision
    probs = np.zeros(VOCAB, dtype=np.float32)
    probs[decision.deferred.token_ids] = decision.deferred.probs
    return replace(decision, deferred=TargetRow(None, probs))


@settings(max_examples=400)
@given(batch=st.lists(cases(), max_size=4))
def test_each_block_of_a_batch_is_decided_as_the_algorithm_says(
    batch: list[tuple[RatioBlock, FloatRow, list[int]]],
) -> None:
    blocks = [block for block, _, _ in batch]
    target = np.concatenate([np.zeros((0, VOCAB), dtype=np.float32), *(rows for _, rows, _ in batch)])
    choices = [choice for _, _, chosen in batch for choice in chosen]
    together = verify_ratio(torch.from_numpy(target), blocks, choices)
    assert [whole(decision) for decision in together] == [
        oracle.ratio(block, list(rows), choices) for block, rows, choices in batch
    ]
    assert verify_ratio(torch.from_numpy(target), blocks, torch.tensor(choices, dtype=torch.int64)) == together
    with everywhere_at_once():
        assert verify_ratio(torch.from_numpy(target), blocks, choices) == together


def uniform_scalars(nodes: int) -> ScalarDraft:
    return ScalarDraft(np.full(nodes, 64), 8)


CHAIN = RatioBlock((1, 2), None, uniform_scalars(2), False, True, Deferral(), 7, 11)
ROW = torch.tensor([[0.5, 0.25, 0.25, 0.0, 0.0]])


def test_rows_of_each_kind_of_block() -> None:
    assert rows_of(CHAIN) == 3
    assert rows_of(replace(CHAIN, bonus=False)) == 2
    assert rows_of(replace(CHAIN, draft=(), bonus=False)) == 1
    assert rows_of(replace(CHAIN, draft=(), bonus=False, deferral=None)) == 0
    assert rows_of(replace(CHAIN, parents=(-1, 0), distribution=SPARSE, deferral=None, bonus=False)) == 3
    assert rows_of(Block("g", 1, 5, 0, draft=(1,), bonus=True)) == 2


@pytest.mark.parametrize("candidates", [0, 4])
def test_a_row_asked_for_again_is_the_one_of_the_rejection(candidates: int) -> None:
    deferral = Deferral(candidates=candidates)
    seed = next(s for s in range(100) if uniforms(s, 11, Purpose.ACCEPT, 1)[0] > 0.5)
    block = replace(CHAIN, draft=(3,), distribution=uniform_scalars(1), bonus=False, deferral=deferral, seed=seed)
    (rejected,) = verify_ratio(ROW, [block], [0])
    assert rejected.path == ()
    assert rejected.deferred is not None
    (again,) = verify_ratio(ROW, [replace(block, draft=(), distribution=None)], [0])
    assert again == rejected


def test_a_row_crosses_in_its_smaller_form() -> None:
    asked = replace(CHAIN, draft=(), distribution=None, bonus=False)
    (few,) = verify_ratio(ROW, [asked], [0])
    assert few.deferred == TargetRow(np.array([0, 1, 2]), np.array([0.5, 0.25, 0.25], dtype=np.float32))
    flat = torch.full((1, 5), 0.2)
    assert verify_ratio(flat, [asked], [0])[0].deferred == TargetRow(None, np.full(5, 0.2, dtype=np.float32))


@pytest.mark.parametrize("candidates", [0, 4])
def test_a_row_of_one_token_is_decided_at_once(candidates: int) -> None:
    """Also where it has only one after rounding: 1e-8 is nothing in fp16."""
    row = torch.tensor([[0.0, 1e-8, 1.0, 0.0, 0.0]])
    asked = replace(CHAIN, draft=(), distribution=None, bonus=False, deferral=Deferral(FloatField.FP16, candidates))
    assert verify_ratio(row, [asked], [0]) == [BlockDecision((), 2)]


def test_the_device_draws_from_either_form_alike_and_only_where_the_target_has_more() -> None:
    draft_probs = np.array([0.75, 0.0, 0.25, 0.0, 0.0])
    sparse = TargetRow(np.array([0, 1, 2]), np.array([0.5, 0.25, 0.25], dtype=np.float32))
    dense = TargetRow(None, np.array([0.5, 0.25, 0.25, 0.0, 0.0], dtype=np.float32))
    for seed in range(50):
        assert draw_correction(sparse, draft_probs, seed, 3) == draw_correction(dense, draft_probs, seed, 3) == 1


def test_the_device_takes_the_first_candidate_that_passes() -> None:
    source = Candidates(np.array([0, 2, 1, 1]), np.array([0.5, 0.25, 0.4, 0.4], dtype=np.float32))
    draft_probs = np.array([0.75, 0.1, 0.15, 0.0, 0.0])
    found = set()
    for seed in range(200):
        numbers = uniforms(seed, 3, Purpose.CANDIDATE_ACCEPT, 4)
        passed = [number < limit for number, limit in zip(numbers, (0.0, 0.4, 0.75, 0.75), strict=True)]
        expected = (0, 2, 1, 1)[passed.index(True)] if any(passed) else None
        assert draw_correction(source, draft_probs, seed, 3) == expected
        found.add(expected)
    assert found == {1, 2, None}


def test_a_row_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(ShapeError, match="the drafter's vocabulary of 5, found 4 entries"):
        draw_correction(TargetRow(None, np.ones(4, dtype=np.float32)), np.ones(5) / 5, 0, 0)


SPARSE = SparseDraft((np.array([1, 2]),) * 2, (np.zeros(2, dtype=np.float32),) * 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"distribution": None}, "no draft distribution"),
        ({"deferral": None}, "scalars without a deferral"),
        ({"parents": (-1, -1)}, "a tree without sparse rows"),
        ({"parents": (-1, 0), "distribution": SPARSE}, "a tree with a deferral"),
        ({"deferral": Deferral(FloatField.INT8)}, "an int8 target row"),
    ],
)
def test_a_block_the_rule_cannot_decide_is_never_made(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedBlockError, match=said):
        replace(CHAIN, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"distribution": uniform_scalars(1)}, "2 tokens needs 2 draft rows, found 1"),
        ({"parents": (-1, -1), "distribution": SPARSE, "deferral": None}, "2 tokens needs 1 draft rows, found 2"),
        ({"parents": (-1, 1), "distribution": SPARSE, "deferral": None}, "-1 or an earlier node"),
    ],
)
def test_disagreeing_shapes_are_never_made(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        replace(CHAIN, **changes)


def test_target_rows_are_those_of_the_blocks() -> None:
    with pytest.raises(ShapeError, match="1 blocks need 3 target rows and choices, found 2 and 2"):
        verify_ratio(torch.zeros(2, VOCAB), [CHAIN], [0, 0])
