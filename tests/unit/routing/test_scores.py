"""Cached prefix against load."""

import pytest

from outrider.routing.load_units import CoordinatorLoad
from outrider.routing.scores import LOAD_TOKENS, ranked, takers


@pytest.mark.parametrize(
    ("cached", "ongoing", "dispatched", "order"),
    [
        ({}, {}, {}, ["a", "b", "c"]),
        ({"b": 16}, {}, {}, ["b", "a", "c"]),
        ({"b": 16}, {"b": 1}, {}, ["a", "c", "b"]),
        ({"b": LOAD_TOKENS + 16}, {"b": 1}, {}, ["b", "a", "c"]),
        ({}, {"a": 3, "b": 1}, {}, ["c", "b", "a"]),
        ({}, {}, {"a": 2, "b": 1}, ["c", "b", "a"]),
        ({"a": 1000}, {"a": 40}, {}, ["b", "c", "a"]),
        ({"a": 100_000}, {"a": 50}, {}, ["b", "c", "a"]),
        ({"a": 100_000}, {"a": 49}, {}, ["a", "b", "c"]),
    ],
)
def test_best_first(
    cached: dict[str, int], ongoing: dict[str, int], dispatched: dict[str, int], order: list[str]
) -> None:
    assert ranked(["a", "b", "c"], cached, ongoing, dispatched, dict.fromkeys("abc", 50)) == order


@pytest.mark.parametrize(
    ("told", "ongoing", "cached", "order"),
    [
        ({"a": (0.8, 2), "b": (0.4, 4)}, {"a": 2, "b": 4}, {}, ["c", "b", "a"]),  # fast promises and slow ones
        ({"a": (0.8, 2), "b": (0.4, 4), "c": (0.6, 6)}, {"a": 2, "b": 4, "c": 6}, {}, ["b", "c", "a"]),
        ({"a": (0.8, 2), "b": (0.4, 4)}, {"a": 1, "b": 5}, {}, ["c", "a", "b"]),  # one has ended, one come since
        ({"a": (0.8, 2), "b": (0.4, 4)}, {"a": 2, "b": 9}, {}, ["c", "a", "b"]),  # five have come since
        ({"a": (9.0, 2), "b": (0.5, 5)}, {"a": 2, "b": 5}, {}, ["c", "b", "a"]),  # 9 counts as 2, so 2.8 fill one
        (
            {"a": (0.6, 6), "b": (0.4, 4)},
            {"a": 6, "b": 4},
            {"a": 1300},
            ["a", "c", "b"],
        ),  # 10 fill one: 200 tokens each
        ({"a": (0.6, 6), "b": (0.4, 4)}, {"a": 6, "b": 4}, {"a": 1100}, ["c", "a", "b"]),
        ({"a": (0.3, 6), "b": (0.2, 4)}, {"a": 6, "b": 4}, {"a": 700}, ["a", "c", "b"]),  # 20 fill one: 100 tokens each
        ({"a": (0.3, 6), "b": (0.2, 4)}, {"a": 6, "b": 4}, {"a": 500}, ["c", "a", "b"]),
        ({"a": (0.03, 6), "b": (0.02, 4)}, {"a": 6, "b": 4}, {"a": 200}, ["a", "c", "b"]),  # 200 fill one: 32 each
        ({"a": (0.03, 6), "b": (0.02, 4)}, {"a": 6, "b": 4}, {"a": 180}, ["c", "a", "b"]),
    ],
)
def test_responses_count_for_what_they_need(
    told: dict[str, tuple[float, float]], ongoing: dict[str, int], cached: dict[str, int], order: list[str]
) -> None:
    fullness = {name: CoordinatorLoad(*one) for name, one in told.items()}
    assert ranked(["a", "b", "c"], cached, ongoing, {}, dict.fromkeys("abc", 50), fullness) == order


def test_a_burst_without_prefixes_is_spread_evenly() -> None:
    ongoing: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    for _ in range(30):
        ongoing[ranked(list(ongoing), {}, ongoing, {}, dict.fromkeys("abc", 100))[0]] += 1
    assert set(ongoing.values()) == {10}


@pytest.mark.parametrize(
    ("loading", "lost", "may"),
    [
        ("", "", "abc"),
        ("b", "", "ac"),
        ("", "c", "ab"),
        ("b", "c", "a"),
        ("abc", "", "abc"),
        ("bc", "a", "bc"),
        ("c", "ba", "c"),
        ("", "bca", "b"),
    ],
)
def test_who_has_no_verifier_is_given_nothing_while_another_has_one(loading: str, lost: str, may: str) -> None:
    assert takers(list("abc"), list(loading), list(lost)) == list(may)
