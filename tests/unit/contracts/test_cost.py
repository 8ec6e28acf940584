"""The cost model: WISP eq. 19, and what row offsets make of it."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import (
    EXACT_ROWS,
    LARGEST_ROWS,
    ROW_BUCKETS,
    BatchWork,
    LinearCostModel,
    VerifyCost,
    bucket_rows,
    row_bucket,
    row_buckets,
)
from outrider.contracts.errors import ParameterError

costs = st.builds(VerifyCost, new_tokens=st.integers(0, 3000), cached_tokens=st.integers(0, 9000))
slopes = st.floats(0.0, 1.0)
offsets = st.lists(st.floats(-1.0, 1.0), min_size=ROW_BUCKETS, max_size=ROW_BUCKETS).map(tuple)
models = st.builds(LinearCostModel, slopes, slopes, slopes, slopes, st.just(()) | offsets)


def offset_at(new_tokens: int, seconds: float) -> tuple[float, ...]:
    return tuple(seconds if bucket == row_bucket(new_tokens) else 0.0 for bucket in range(ROW_BUCKETS))


def test_the_cost_model_is_wisp_equation_19() -> None:
    model = LinearCostModel(2.0, 0.5, 0.25, 10.0)
    batch = [VerifyCost(3, 100), VerifyCost(1, 0)]
    assert model.predict_s(batch) == 2.0 * 4 + 0.5 * (103 * 3 + 1 * 1) + 0.25 * 100 + 10.0


@given(models, st.lists(costs, max_size=8))
def test_one_batch_has_one_price_however_it_is_asked(model: LinearCostModel, batch: list[VerifyCost]) -> None:
    work = BatchWork()
    for cost in batch:
        work = work.plus(cost)
    expected = pytest.approx(model.predict_s(batch))
    assert model.predict_work_s(work) == expected
    works = np.array([(work.new_tokens, work.interactions, work.cached_tokens)] * 2, dtype=np.float64)
    assert model.predict_works_s(works).tolist() == [expected, expected]
    assert model.predict_s(batch) > 0.0


@given(models, costs, st.integers(1, 9))
def test_blocks_alike_cost_what_a_batch_of_them_does(model: LinearCostModel, cost: VerifyCost, blocks: int) -> None:
    assert model.predict_alike_s(cost, float(blocks)) == pytest.approx(model.predict_s([cost] * blocks))


@pytest.mark.parametrize(("blocks", "expected_s"), [(1.0, 6.0), (2.0, 10.0), (2.5, 12.0), (0.5, 4.0)])
def test_a_mean_number_of_blocks_has_a_cost(blocks: float, expected_s: float) -> None:
    assert LinearCostModel(1.0, 0.0, 0.0, 2.0).predict_alike_s(VerifyCost(4, 7), blocks) == expected_s


def test_an_offset_is_added_to_batches_of_its_number_of_rows_alone() -> None:
    model = LinearCostModel(1.0, 0.0, 0.0, 0.0, offset_at(4, 10.0))
    assert [model.predict_s([VerifyCost(new, 5)]) for new in (3, 4, 5)] == [3.0, 14.0, 5.0]
    assert model.predict_s([VerifyCost(3, 5), VerifyCost(1, 9)]) == 14.0, "rows are the whole batch's"
    large = LinearCostModel(1.0, 0.0, 0.0, 0.0, offset_at(20, 10.0))
    assert [large.predict_s([VerifyCost(new, 0)]) for new in (16, 17, 32, 33)] == [16.0, 27.0, 42.0, 33.0]


def test_no_offset_makes_a_batch_take_no_time() -> None:
    model = LinearCostModel(0.0, 0.0, 0.0, 1.0, offset_at(2, -5.0))
    assert 0.0 < model.predict_s([VerifyCost(2, 0)]) < 1e-3
    assert model.predict_works_s(np.array([[2.0, 4.0, 0.0]]))[0] > 0.0


def test_every_number_of_rows_is_in_one_bucket_and_buckets_grow_by_doubling() -> None:
    for bucket in range(ROW_BUCKETS):
        first, last = bucket_rows(bucket)
        assert {row_bucket(first), row_bucket(last)} == {bucket}
        assert first == last if bucket <= EXACT_ROWS else last == 2 * (first - 1)
    rows = np.arange(0, 2 * LARGEST_ROWS)
    assert row_buckets(rows.astype(np.float64)).tolist() == [row_bucket(int(new)) for new in rows]


def test_a_model_is_frozen_travels_and_refuses_a_table_of_another_size() -> None:
    model = LinearCostModel(1.0, 2.0, 3.0, 4.0, offset_at(3, 0.5), 0.1)
    assert pickle.loads(pickle.dumps(model)) == model
    assert model.guard_s(20.0) == 2.0
    with pytest.raises(FrozenInstanceError):
        model.seconds_per_token = 2.0  # type: ignore[misc]
    with pytest.raises(ParameterError, match=f"row_offsets_s needs none or {ROW_BUCKETS} numbers, found 1"):
        LinearCostModel(1.0, 1.0, 1.0, 1.0, (1.0,))
