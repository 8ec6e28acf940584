from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from outrider.text.stops import StopMatcher, tokens_that_stop
from tests.unit.text.cut_at_stop import cut_at_stop

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


def test_tokens_that_stop_have_a_stop_string_in_their_own_text() -> None:
    texts = ["a", "b\n", "", " end", "nd\n\n", "\ufffd"]
    assert tokens_that_stop(texts, ["\n"]) == (1, 4)
    assert tokens_that_stop(texts, ["nd", "a"]) == (0, 3, 4)
    assert tokens_that_stop(texts, ["\n\n\n"]) == ()
    assert tokens_that_stop(texts, []) == ()
