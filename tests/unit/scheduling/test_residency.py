from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from outrider.scheduling.residency import SwapPrices, first_to_go

SECONDS = st.floats(0.0, 10.0)


@dataclass(frozen=True)
class Sequence:
    due_at_s: float
    last_used: int


HOLDERS = st.lists(
    st.builds(Sequence, st.sampled_from([0.0, 1.0, 2.5, inf]), st.integers(0, 99)),
    min_size=1,
    max_size=8,
    unique_by=lambda one: one.last_used,
)


@given(HOLDERS, st.randoms())
def test_nobody_stays_behind_who_is_due_earlier_or_was_used_more_recently(holders: list[Sequence], random) -> None:  # type: ignore[no-untyped-def]
    goes = first_to_go(holders)
    assert goes is not None
    for other in holders:
        assert goes.due_at_s > other.due_at_s or (goes.due_at_s == other.due_at_s and goes.last_used <= other.last_used)
    random.shuffle(holders)
    assert first_to_go(holders) == goes, "their order does not matter"


@given(HOLDERS)
def test_best_effort_goes_before_whoever_is_promised_a_speed(holders: list[Sequence]) -> None:
    goes = first_to_go(holders)
    assert goes is not None
    assert (goes.due_at_s == inf) == any(one.due_at_s == inf for one in holders)


def test_of_nobody_nobody_goes() -> None:
    assert first_to_go(list[Sequence]()) is None


@given(SECONDS, SECONDS, SECONDS)
def test_copying_pays_where_both_ways_take_less_than_computing(out_s: float, in_s: float, recompute_s: float) -> None:
    assert SwapPrices(out_s, in_s, recompute_s).copying_pays == (out_s + in_s < recompute_s)
    assert not SwapPrices().copying_pays, "nothing is known"
