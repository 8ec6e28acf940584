"""Rows are verified as long as they pay: against every other way to cut, and where the service waits or not."""

from itertools import accumulate, product
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.cost import EXACT_ROWS, ROW_BUCKETS, BatchWork, LinearCostModel, VerifyCost
from outrider.scheduling.trimming import Chain, Trim, idle_s, rows_worth_verifying, trim

DEAR = LinearCostModel(4.5e-3, 2e-7, 8e-6, 45e-3)
FREE = LinearCostModel(0.0, 0.0, 0.0, 27e-3)
NOTHING = BatchWork()


def chain(*acceptances: float, cached: int = 100) -> Chain:
    return Chain(VerifyCost(1 + len(acceptances), cached), tuple(accumulate(acceptances, mul)))


def tokens_per_s(chains: list[Chain], kept: tuple[int, ...], idle: float, model: LinearCostModel) -> float:
    """By the definition."""
    pairs = list(zip(chains, kept, strict=True))
    seconds = model.predict_s([VerifyCost(1 + rows, one.cost.cached_tokens) for one, rows in pairs])
    return sum(1.0 + sum(one.survivals[:rows]) for one, rows in pairs) / (seconds + idle)


chains_of = st.lists(
    st.lists(st.sampled_from([0.1, 0.5, 0.8, 0.95, 1.0]), max_size=3).map(lambda each: chain(*each)),
    min_size=1,
    max_size=3,
)


@given(chains=chains_of, idle=st.sampled_from([0.0, 0.05, 1.0]))
def test_no_other_cut_commits_more(chains: list[Chain], idle: float) -> None:
    """Up to what is not worth cutting for, and the little by which rows of one step differ in cost."""
    kept = trim(chains, NOTHING, 0.0, idle, DEAR).kept
    every = product(*(range(len(one.survivals) + 1) for one in chains))
    best = max(tokens_per_s(chains, other, idle, DEAR) for other in every)
    assert tokens_per_s(chains, kept, idle, DEAR) >= 0.985 * best


def test_a_crowd_keeps_what_survives_and_the_first_row_that_does_not_pay_is_told() -> None:
    good, bad = chain(0.95, 0.95, 0.95), chain(0.3, 0.3, 0.3)
    found = trim([good, bad] * 16, NOTHING, 0.0, 0.0, DEAR)
    assert found.kept == (3, 0) * 16
    assert found.min_survival == pytest.approx(0.3)
    assert [rows_worth_verifying(one.survivals, found.min_survival) for one in (good, bad)] == [3, 0]


def test_nothing_is_cut_where_rows_are_free_or_the_verifier_waits_anyway() -> None:
    chains = [chain(0.5, 0.5, 0.5, 0.5)]
    assert trim(chains * 32, NOTHING, 0.0, 0.0, FREE) == Trim((4,) * 32)
    assert trim(chains * 32, NOTHING, 0.0, 0.0, DEAR).kept < (4,) * 32
    assert trim(chains, NOTHING, 0.0, 10.0, DEAR) == Trim((4,))
    assert trim([], NOTHING, 0.0, 0.0, DEAR) == Trim(())


def test_who_goes_on_alone_makes_a_second_dear() -> None:
    """Thirty-two more tokens a step: each row delays them."""
    chains, autonomous_runs = [chain(0.6, 0.6, 0.6)] * 4, BatchWork(32, 32 * 101, 3200)
    assert min(trim(chains, NOTHING, 0.0, 0.0, DEAR).kept) > 0
    assert trim(chains, autonomous_runs, 32.0, 0.0, DEAR).kept == (0,) * 4


def test_rows_behind_a_jump_are_looked_at() -> None:
    """The second row costs a lot, those behind it nothing."""
    offsets = [0.0] * ROW_BUCKETS
    offsets[3 : EXACT_ROWS + 1] = [0.03] * (EXACT_ROWS - 2)
    steep = LinearCostModel(0.0, 0.0, 0.0, 0.05, tuple(offsets))
    assert trim([chain(1.0, 0.5)], NOTHING, 0.0, 0.0, steep).kept == (1,)
    assert trim([chain(1.0, *(0.97,) * 8)], NOTHING, 0.0, 0.0, steep).kept == (9,)


@pytest.mark.parametrize(
    ("members", "coming_s", "idle"),
    [
        ([(3.0, 0.3)], [], 0.3),  # alone: the verifier waits for its next draft
        ([(1.0, 0.0)] * 4, [], 0.0),  # they go on alone
        ([(3.0, 0.3)], [0.0, 0.0, 0.0], 0.0),  # three wait: it is busy all of the round
        ([(3.0, 0.3)], [0.0], 0.1),  # one does
        ([(3.0, 0.3)], [0.1, 0.2], 1 / 30),  # one behind the other
        ([(3.0, 0.3)], [0.11], 0.3),  # it is idle before that one comes
        ([], [], 0.0),
    ],
)
def test_a_second_counts_as_far_as_somebody_waits(
    members: list[tuple[float, float]], coming_s: list[float], idle: float
) -> None:
    assert idle_s(0.1, members, coming_s) == pytest.approx(idle)
