from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import ParameterError
from outrider.models.registry import load_tokenizer
from outrider.text.stops import IncrementalText, Piece, StopMatcher, tokens_that_stop

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
    assert block.shown_tokens == singles[-1].shown_tokens
    shown = block.text + by_block.finish()
    by_token.finish()
    assert by_block.shown_tokens == by_token.shown_tokens
    expected = cut_at_stop(decode(ids), stop)
    assert shown == (decode(ids) if expected is None else expected)


def test_the_token_that_completes_a_stop_string_is_the_last_consumed() -> None:
    ids = encode("One two three four")
    text = IncrementalText(TOKENIZER, (" two th",))
    assert text.push(ids) == Piece("One", 3, stopped=True, shown_tokens=1)
    assert text.push(ids) == Piece("", 0, stopped=True, shown_tokens=1)
    assert text.finish() == ""


def test_a_stop_string_may_span_blocks_and_its_beginning_is_held() -> None:
    one, two, three, four = encode("One two three four")
    text = IncrementalText(TOKENIZER, ("two three",))
    assert [text.push([one, two]), text.push([three, four])] == [
        Piece("One ", 2, stopped=False, shown_tokens=1),
        Piece("", 1, stopped=True, shown_tokens=1),
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
    assert text.push([*encode("Yes"), END_OF_TURN]) == Piece("Yes", 2, stopped=False, shown_tokens=2)
    assert text.finish() == ""


@given(
    any_ids,
    hard_text.filter(bool),
    st.lists(st.sampled_from(["a", " the", "e\n", "\ufffd", "\ufffd\ufffd"]), max_size=2),
    st.integers(0, 40),
)
def test_a_token_is_shown_once_its_last_character_is(
    ids: list[int], marker: str, stop: list[str], min_tokens: int
) -> None:
    """Where a token's text ends is the length of what all tokens up to it are decoded to: U+FFFD is one character."""
    ids, stop = [*ids, *encode(marker), *ids[:5], END_OF_TURN], [*stop, marker[-2:]]
    ends = [len(decode(ids[: count + 1])) for count in range(len(ids))]
    text, characters = IncrementalText(TOKENIZER, stop, min_tokens=min_tokens), 0
    for count, token in enumerate(ids, start=1):
        piece = text.push([token])
        characters += len(piece.text)
        pushed = ends[:count]
        assert piece.shown_tokens == text.shown_tokens == sum(end <= characters for end in pushed)
        if piece.stopped:
            break
    characters += len(text.finish())
    assert text.shown_tokens == sum(end <= characters for end in ends)
    assert (text.shown_tokens == len(ids)) == (characters == ends[-1])


@given(
    any_ids,
    st.lists(st.sampled_from(["a", "th", "e\n", "\ufffd", "in", " "]), max_size=3),
    st.integers(0, 45),
    st.lists(st.integers(0, 40), max_size=4),
)
@example(encode("aaaa bbbb aaaa"), ["a"], 1, [])
def test_stop_strings_are_looked_for_behind_min_tokens_only(
    ids: list[int], stop: list[str], min_tokens: int, cuts: list[int]
) -> None:
    without = IncrementalText(TOKENIZER)
    early = without.push(ids[:min_tokens]).text
    later = cut_at_stop(decode(ids)[len(early) :], stop) if len(ids) > min_tokens else None
    text = IncrementalText(TOKENIZER, stop, min_tokens=min_tokens)
    shown = "".join(text.push(block).text for block in blocks_of(ids, cuts)) + text.finish()
    assert shown == (decode(ids) if later is None else early + later)


def test_a_stop_string_that_begins_within_min_tokens_is_none() -> None:
    ids = encode("One two three two three")
    text = IncrementalText(TOKENIZER, (" two three",), min_tokens=2)
    assert text.push(ids) == Piece("One two three", 5, stopped=True, shown_tokens=3)
    resumed = IncrementalText(TOKENIZER, (" two three",), ids[:2], min_tokens=2)
    assert resumed.push(ids[2:]) == Piece(" three", 3, stopped=True, shown_tokens=3)


def test_a_token_without_text_is_shown_with_those_before_it() -> None:
    one, two, three, *_ = encode("One two three")
    text = IncrementalText(TOKENIZER, (" two four",))
    shown = [text.push([token]).shown_tokens for token in (one, END_OF_TURN, two, END_OF_TURN, three)]
    assert shown == [1, 2, 2, 2, 5]


def test_the_tokens_of_a_split_character_are_shown_together() -> None:
    tokens = encode("漢x")
    assert len(tokens) > 2
    text = IncrementalText(TOKENIZER, ("xy",))
    counts = [text.push([token]).shown_tokens for token in tokens]
    assert counts == [0] * (len(tokens) - 2) + [len(tokens) - 1] * 2
    assert (text.finish(), text.shown_tokens) == ("x", len(tokens))


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


def test_tokens_that_stop_have_a_stop_string_in_their_own_text() -> None:
    texts = ["a", "b\n", "", " end", "nd\n\n", "\ufffd"]
    assert tokens_that_stop(texts, ["\n"]) == (1, 4)
    assert tokens_that_stop(texts, ["nd", "a"]) == (0, 3, 4)
    assert tokens_that_stop(texts, ["\n\n\n"]) == ()
    assert tokens_that_stop(texts, []) == ()
