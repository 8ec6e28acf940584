from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ParameterError
from outrider.costs.fit_figures import PAPER_KINDS, BatchKind
from outrider.costs.profiling_plan import profiling_plan


def test_counts_are_the_papers() -> None:
    plan = profiling_plan(2000)
    train, test = (Counter(one.kind for one in part) for part in (plan.train, plan.test))
    assert train[BatchKind.COMPUTE_BOUND] == 25 + 15
    assert train[BatchKind.MEMORY_BOUND] == 48 + 15
    assert train[BatchKind.MIXED] == 20
    assert sum(test[kind] for kind in PAPER_KINDS) == 50


def test_at_the_papers_size_the_grids_are_the_papers() -> None:
    plan = profiling_plan(2000)
    totals = {sum(block.new_tokens for block in one.blocks) for one in plan.train[:25]}
    assert totals == {1200, 1400, 1600, 1800, 2000}
    memory = plan.train[25 : 25 + 48]
    assert {one.blocks[0].new_tokens for one in memory} == {1, 5, 10, 20, 50, 100}
    assert {sum((one.blocks[0].new_tokens, one.blocks[0].cached_tokens)) for one in memory} == {500, 1000, 1500, 2000}
    assert {len(one.blocks) for one in memory} == {1, 4}
    assert all(sum(block.new_tokens for block in one.blocks) >= 1200 for one in plan.train[73 : 73 + 15])


@given(st.integers(64, 3000), st.integers(0, 50), st.floats(0.05, 1.0))
def test_configurations_are_what_their_kind_says(largest: int, seed: int, share: float) -> None:
    plan = profiling_plan(largest, seed, share)
    assert not set(plan.train) & set(plan.test)
    for one in (*plan.train, *plan.test):
        assert all(block.new_tokens >= 1 and block.cached_tokens >= 0 for block in one.blocks)
        cached = [block.cached_tokens for block in one.blocks]
        if one.kind is BatchKind.COMPUTE_BOUND:
            assert not any(cached)
        elif one.kind is BatchKind.MIXED:
            assert any(cached)
            assert not all(cached)
        else:
            assert all(cached)
            assert all(block.new_tokens + block.cached_tokens <= largest for block in one.blocks)
        if one.kind is BatchKind.VERIFICATION:
            assert all(block.new_tokens <= 9 for block in one.blocks)
    assert {one.kind for one in plan.train} == {one.kind for one in plan.test} == set(BatchKind)


def test_a_plan_is_the_same_every_time_and_another_with_another_seed() -> None:
    assert profiling_plan(256, 1) == profiling_plan(256, 1)
    assert profiling_plan(256, 1).test != profiling_plan(256, 2).test


@pytest.mark.parametrize(("largest", "share", "field"), [(63, 1.0, "largest_tokens"), (256, 0.0, "share")])
def test_what_cannot_be_scaled_is_refused(largest: int, share: float, field: str) -> None:
    with pytest.raises(ParameterError, match=field):
        profiling_plan(largest, 0, share)
