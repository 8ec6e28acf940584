"""Cached prefix against load."""

import pytest

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
