from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from outrider.errors import ParameterError
from outrider.models.registry import load_tokenizer
from outrider.text import IncrementalText, Piece, StopMatcher

TOKENIZER = load_tokenizer("smollm2-135m-instruct")
BYTES_IN = range(3, 300)  # among these ids are all single bytes: most sequences of them are not UTF-8
END_OF_TURN = 2

any_ids = st.lists(st.integers(0, len(TOKENIZER) - 1) | st.sampled_from(BYTES_IN), max_size=40)
hard_text = st.text(alphabet="ab 漢字日本é\u0301👩\u200d👧🏽�\n", max_size=20)
ab_text = st.text(alphabet="aab", max_size=30)
ab_stops = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text)
    return ids


def decode(ids: Sequence[int]) -> str:
    text = TOKENIZER.decode(list(ids), skip_special_tokens=True)
    assert isinstance(text, str)
    return text


def blocks_of(ids: Sequence[int], cuts: Sequence[int]) -> list[Sequence[int]]:
    bounds = [0, *sorted({min(cut, len(ids)) for cut in cuts}), len(ids)]
    return [ids[low:high] for low, high in pairwise(bounds)]


def cut_at_stop(text: str, stops: Sequence[str]) -> str | None:
    """Reference: the shortest prefix that ends in a stop string, less the longest one it ends in."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - len(max(complete, key=len))]
    return None


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


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ParameterError, match="stop needs non-empty strings"):
        StopMatcher(["a", ""])


@given(any_ids, st.lists(st.integers(0, 40), max_size=6))
def test_all_pieces_together_are_the_decoded_text(ids: list[int], cuts: list[int]) -> None:
    text = IncrementalText(TOKENIZER)
    shown = [text.push(block).text for block in blocks_of(ids, cuts)]
    assert decode(ids).startswith("".join(shown))
    assert "".join(shown) + text.finish() == decode(ids)


@given(hard_text)
@example("👩\u200d👩\u200d👧 漢字")
def test_no_character_is_shown_before_it_is_complete(text: str) -> None:
    incremental = IncrementalText(TOKENIZER)
    shown = [incremental.push([token]).text for token in encode(text)]
    assert all(text.startswith(so_far) for so_far in accumulate(shown))
    assert "".join(shown) + incremental.finish() == text


@given(any_ids, hard_text.filter(bool), st.data())
def test_stop_and_token_count_do_not_depend_on_blocks(ids: list[int], marker: str, data: st.DataObject) -> None:
    ids = [*ids, *encode(marker), *ids]
    stop = data.draw(st.lists(st.sampled_from([marker, marker[:1], marker[-1:], "zz"]), max_size=3))
    by_token, by_block = IncrementalText(TOKENIZER, stop), IncrementalText(TOKENIZER, stop)
    singles = [by_token.push([token]) for token in ids]
    block = by_block.push(ids)
    assert block.text == "".join(piece.text for piece in singles)
    assert block.consumed_tokens == sum(piece.consumed_tokens for piece in singles)
    assert block.stopped == singles[-1].stopped
    shown = block.text + by_block.finish()
    expected = cut_at_stop(decode(ids), stop)
    assert shown == (decode(ids) if expected is None else expected)


def test_the_token_that_completes_a_stop_string_is_the_last_consumed() -> None:
    ids = encode("One two three four")
    text = IncrementalText(TOKENIZER, (" two th",))
    assert text.push(ids) == Piece("One", 3, stopped=True)
    assert text.push(ids) == Piece("", 0, stopped=True)
    assert text.finish() == ""


def test_a_stop_string_may_span_blocks_and_its_beginning_is_held() -> None:
    one, two, three, four = encode("One two three four")
    text = IncrementalText(TOKENIZER, ("two three",))
    assert [text.push([one, two]), text.push([three, four])] == [
        Piece("One ", 2, stopped=False),
        Piece("", 1, stopped=True),
    ]


def test_the_beginning_of_a_stop_string_is_shown_when_it_turns_out_to_be_none() -> None:
    one, two, _, four = encode("One two three four")
    text = IncrementalText(TOKENIZER, ("two three",))
    assert text.push([one, two]).text == "One "
    assert text.push([four]).text == "two four"
    text.push([two])
    assert text.finish() == "two"


def test_special_tokens_have_no_text() -> None:
    text = IncrementalText(TOKENIZER, ("<|im_end|>",))
    assert text.push([*encode("Yes"), END_OF_TURN]) == Piece("Yes", 2, stopped=False)
    assert text.finish() == ""


@given(any_ids, st.integers(0, 40), st.lists(st.sampled_from(["a", " the", "e\n", "\ufffd", "ing "]), max_size=2))
def test_a_resumed_response_goes_on_where_it_was(ids: list[int], sent: int, stop: list[str]) -> None:
    whole = IncrementalText(TOKENIZER, stop)
    whole.push(ids[:sent])
    resumed = IncrementalText(TOKENIZER, stop, ids[:sent])
    assert resumed.push(ids[sent:]) == whole.push(ids[sent:])
    assert resumed.finish() == whole.finish()


def test_a_tokenizer_without_a_backend_is_refused() -> None:
    with pytest.raises(Exception, match=r"needs a tokenizer with a tokenizers backend, found PreTrainedTokenizerBase"):
        IncrementalText(PreTrainedTokenizerBase())
