from itertools import pairwise
from time import thread_time

from hypothesis import example, given
from hypothesis import strategies as st

from outrider.text.stops import StopMatcher, tokens_that_stop
from tests.unit.text.cut_at_stop import cut_at_stop, held_back

ab_text = st.text(alphabet="aab", max_size=30)
ab_stops = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)


@given(ab_text, ab_stops, st.lists(st.integers(0, 30), max_size=8))
@example("aab", ["aab", "ab"], [1, 2])
@example("xabcd", ["abcd", "c"], [])
def test_stop_strings_cut_where_the_full_text_would_be_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopMatcher(stops)
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown = [matcher.push(text[low:high]) for low, high in pairwise(bounds)]
    expected = cut_at_stop(text, stops)
    assert matcher.stopped == (expected is not None)
    assert "".join(shown) + matcher.finish() == (text if expected is None else expected)


@given(ab_text, ab_stops)
def test_nothing_is_held_that_no_stop_string_begins_with(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = matcher.push(text)
    held = matcher.finish()
    if not matcher.stopped:
        assert shown + held == text
        assert not held or any(stop.startswith(held) for stop in stops)


@given(ab_text, ab_stops, st.lists(st.integers(0, 30), max_size=8))
@example("abab", ["babb", "abac"], [2, 3])
def test_the_text_held_back_is_the_longest_beginning_of_a_stop_string(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    matcher, shown = StopMatcher(stops), ""
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for low, high in pairwise(bounds):
        shown += matcher.push(text[low:high])
        if matcher.stopped:
            return
        assert shown == text[: high - held_back(text[:high], stops)]


def test_a_character_costs_the_same_whatever_the_stop_strings() -> None:
    """Against 16 strings of 1,024 characters, one of which is held back nearly whole at every token."""
    matcher = StopMatcher([("ab" * 512)[:1022] + "zz", *(chr(ord("c") + i) * 1024 for i in range(15))])
    matcher.push("ab" * 512)
    began_s = thread_time()
    for _ in range(100_000):
        assert matcher.push("abab") == "abab"
    assert thread_time() - began_s < 5.0  # 0.3 s; each beginning of each string compared in turn took 490 s
    assert len(matcher.finish()) == 1022


def test_tokens_that_stop_have_a_stop_string_in_their_own_text() -> None:
    texts = ["a", "b\n", "", " end", "nd\n\n", "\ufffd"]
    assert tokens_that_stop(texts, ["\n"]) == (1, 4)
    assert tokens_that_stop(texts, ["nd", "a"]) == (0, 3, 4)
    assert tokens_that_stop(texts, ["\n\n\n"]) == ()
    assert tokens_that_stop(texts, []) == ()
