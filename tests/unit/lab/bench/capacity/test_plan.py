from collections import Counter
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.capacity.log import Cell
from lab.bench.capacity.plan import POLICIES, Load, UserPlan, cells, speed_classes, user_plans
from lab.bench.harness.recorded_drafts import RecordedResponse
from outrider.contracts.errors import ParameterError

CLASSES = speed_classes((2.0, 4.0, 6.0))


def responses(count: int) -> list[RecordedResponse]:
    return [RecordedResponse((number,), (1, 2), ((2,), ())) for number in range(count)]


def users(cell: Cell, seed: int = 0, count: int = 20) -> list[UserPlan]:
    return user_plans(cell, CLASSES, responses(count), seed=seed, pause_s=1.0, stagger_s=2.0)


@given(
    policies=st.integers(1, 4), numbers=st.sets(st.integers(1, 40), min_size=1, max_size=4), repeats=st.integers(1, 5)
)
def test_every_cell_is_measured_once_and_no_policy_is_always_first(
    policies: int, numbers: set[int], repeats: int
) -> None:
    names, counts = tuple(POLICIES)[:policies], sorted(numbers)
    planned = cells(names, [Load(count) for count in counts], range(repeats))
    assert Counter(planned) == Counter(Cell(*key) for key in product(names, counts, range(repeats)))
    firsts = [planned[start].policy for start in range(0, len(planned), policies)]
    assert len(set(firsts)) == min(policies, len(counts) + repeats - 1)


@given(count=st.integers(1, 20), repeat=st.integers(0, 3), seed=st.integers(0, 5))
def test_users_are_the_same_under_every_policy_and_share_no_prompt(count: int, repeat: int, seed: int) -> None:
    first, second = (users(Cell(policy, count, repeat), seed) for policy in ("sled", "slo_aware"))
    assert first == second
    prompts = [response.prompt_ids for user in first for response in user.responses]
    assert len(set(prompts)) == len(prompts) == 20
    assert [user.slo for user in first] == [CLASSES[number % 3] for number in range(count)]
    assert all(0.0 <= user.starts_at_s < 2.0 for user in first)


def test_a_user_asks_for_all_it_has_in_an_order_of_its_own_and_begins_again() -> None:
    asked = list(islice(users(Cell("fcfs", 2, 0))[1].requests(), 20))
    again = list(islice(users(Cell("wisp", 2, 0))[1].requests(), 20))
    assert asked == again
    assert [response for response, _ in asked[:10]] == [response for response, _ in asked[10:]]
    assert len({response.prompt_ids for response, _ in asked}) == 10
    assert [pause for _, pause in asked[:10]] != [pause for _, pause in asked[10:]]


def test_in_an_open_loop_users_come_as_planned_and_ask_once() -> None:
    first, second = (users(Cell(policy, 50, 1, "poisson", 2.0), count=20) for policy in ("fcfs", "slo_aware"))
    assert first == second
    assert [plan.starts_at_s for plan in first] == sorted(plan.starts_at_s for plan in first)
    assert [len(list(plan.requests())) for plan in first] == [1] * 50
    asked = [next(plan.requests())[0].prompt_ids for plan in first]
    assert len(set(asked[:20])) == 20
    assert asked[20:40] == asked[:20]
    assert users(Cell("fcfs", 50, 2, "poisson", 2.0)) != first


def test_who_is_refused_comes_back_half_as_early_or_half_as_late() -> None:
    shares = list(islice(users(Cell("fcfs", 2, 0))[0].retries(), 100))
    assert shares == list(islice(users(Cell("fcfs", 2, 0))[0].retries(), 100))
    assert 0.5 <= min(shares) < 0.7
    assert 1.3 < max(shares) <= 1.5


def test_another_repeat_or_seed_is_another_load() -> None:
    starts = [users(Cell("fcfs", 3, repeat), seed)[0].starts_at_s for repeat, seed in ((0, 0), (1, 0), (0, 1))]
    assert len(set(starts)) == 3


def test_more_users_than_responses_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least 4 usable recorded responses"):
        users(Cell("fcfs", 4, 0), count=3)
