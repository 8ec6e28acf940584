from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from outrider.models.tokenizer import load_tokenizer
from outrider.text.shown import IncrementalText
from tests.unit.text.cut_at_stop import cut_at_stop

TOKENIZER = load_tokenizer("smollm2-135m-instruct")
BYTES_IN = range(3, 300)  # among these ids are all single bytes: most sequences of them are not UTF-8
END_OF_TURN = 2

any_ids = st.lists(st.integers(0, len(TOKENIZER) - 1) | st.sampled_from(BYTES_IN), max_size=40)
hard_text = st.text(alphabet="ab 漢字日本é\u0301👩\u200d👧🏽�\n", max_size=20)


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text)
    return ids


def decode(ids: Sequence[int]) -> str:
    text = TOKENIZER.decode(list(ids), skip_special_tokens=True)
    assert isinstance(text, str)
    return text


def pushed(text: IncrementalText, ids: Sequence[int]) -> list[str]:
    return [text.push(token_id) for token_id in ids]


def shown_tokens(text: IncrementalText, token_id: int) -> int:
    text.push(token_id)
    return text.shown_tokens


@given(any_ids)
def test_all_pieces_together_are_the_decoded_text(ids: list[int]) -> None:
    text = IncrementalText(TOKENIZER)
    shown = "".join(pushed(text, ids))
    assert decode(ids).startswith(shown)
    assert shown + text.finish() == decode(ids)


@given(hard_text)
@example("👩\u200d👩\u200d👧 漢字")
def test_no_character_is_shown_before_it_is_complete(text: str) -> None:
    incremental = IncrementalText(TOKENIZER)
    shown = pushed(incremental, encode(text))
    assert all(text.startswith(so_far) for so_far in accumulate(shown))
    assert "".join(shown) + incremental.finish() == text


@given(any_ids, hard_text.filter(bool), st.data())
def test_text_is_cut_at_the_first_stop_string(ids: list[int], marker: str, data: st.DataObject) -> None:
    ids = [*ids, *encode(marker), *ids]
    stop = data.draw(st.lists(st.sampled_from([marker, marker[:1], marker[-1:], "zz"]), max_size=3))
    text = IncrementalText(TOKENIZER, stop)
    shown = "".join(pushed(text, ids)) + text.finish()
    expected = cut_at_stop(decode(ids), stop)
    assert shown == (decode(ids) if expected is None else expected)


def test_nothing_is_shown_behind_a_stop_string() -> None:
    ids = encode("One two three four")
    text = IncrementalText(TOKENIZER, (" two th",))
    assert (pushed(text, ids), text.stopped, text.shown_tokens) == (["One", "", "", ""], True, 1)
    assert (pushed(text, ids), text.shown_tokens, text.finish()) == ([""] * 4, 1, "")


def test_the_beginning_of_a_stop_string_is_held() -> None:
    one, two, three, _ = encode("One two three four")
    text = IncrementalText(TOKENIZER, ("two three",))
    assert (pushed(text, [one, two]), text.stopped, text.shown_tokens) == (["One", " "], False, 1)
    assert (pushed(text, [three]), text.stopped, text.shown_tokens) == ([""], True, 1)


def test_the_beginning_of_a_stop_string_is_shown_when_it_turns_out_to_be_none() -> None:
    one, two, _, four = encode("One two three four")
    text = IncrementalText(TOKENIZER, ("two three",))
    assert pushed(text, [one, two, four, two]) == ["One", " ", "two four", " "]
    assert text.finish() == "two"


def test_special_tokens_have_no_text() -> None:
    text = IncrementalText(TOKENIZER, ("<|im_end|>",))
    assert (pushed(text, [*encode("Yes"), END_OF_TURN]), text.stopped, text.shown_tokens) == (["Yes", ""], False, 2)
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
        characters += len(text.push(token))
        assert text.shown_tokens == sum(end <= characters for end in ends[:count])
        if text.stopped:
            break
    characters += len(text.finish())
    assert text.shown_tokens == sum(end <= characters for end in ends)
    assert (text.shown_tokens == len(ids)) == (characters == ends[-1])


@given(
    any_ids,
    st.lists(st.sampled_from(["a", "th", "e\n", "\ufffd", "in", " "]), max_size=3),
    st.integers(0, 45),
)
@example(encode("aaaa bbbb aaaa"), ["a"], 1)
def test_stop_strings_are_looked_for_behind_min_tokens_only(ids: list[int], stop: list[str], min_tokens: int) -> None:
    early = "".join(pushed(IncrementalText(TOKENIZER), ids[:min_tokens]))
    later = cut_at_stop(decode(ids)[len(early) :], stop) if len(ids) > min_tokens else None
    text = IncrementalText(TOKENIZER, stop, min_tokens=min_tokens)
    shown = "".join(pushed(text, ids)) + text.finish()
    assert shown == (decode(ids) if later is None else early + later)


def test_a_stop_string_that_begins_within_min_tokens_is_none() -> None:
    ids = encode("One two three two three")
    text = IncrementalText(TOKENIZER, (" two three",), min_tokens=2)
    assert (pushed(text, ids), text.stopped, text.shown_tokens) == (["One", " two", " three", "", ""], True, 3)
    resumed = IncrementalText(TOKENIZER, (" two three",), ids[:2], min_tokens=2)
    assert (pushed(resumed, ids[2:]), resumed.stopped, resumed.shown_tokens) == ([" three", "", ""], True, 3)


def test_a_token_without_text_is_shown_with_those_before_it() -> None:
    one, two, three, *_ = encode("One two three")
    text = IncrementalText(TOKENIZER, (" two four",))
    counts = [shown_tokens(text, token) for token in (one, END_OF_TURN, two, END_OF_TURN, three)]
    assert counts == [1, 2, 2, 2, 5]


def test_the_tokens_of_a_split_character_are_shown_together() -> None:
    tokens = encode("漢x")
    assert len(tokens) > 2
    text = IncrementalText(TOKENIZER, ("xy",))
    counts = [shown_tokens(text, token) for token in tokens]
    assert counts == [0] * (len(tokens) - 2) + [len(tokens) - 1] * 2
    assert (text.finish(), text.shown_tokens) == ("x", len(tokens))


@given(any_ids, st.integers(0, 40), st.lists(st.sampled_from(["a", " the", "e\n", "\ufffd", "ing "]), max_size=2))
def test_a_resumed_response_goes_on_where_it_was(ids: list[int], sent: int, stop: list[str]) -> None:
    whole = IncrementalText(TOKENIZER, stop)
    pushed(whole, ids[:sent])
    resumed = IncrementalText(TOKENIZER, stop, ids[:sent])
    assert pushed(resumed, ids[sent:]) == pushed(whole, ids[sent:])
    assert (resumed.finish(), resumed.shown_tokens) == (whole.finish(), whole.shown_tokens)


def test_a_tokenizer_without_a_backend_is_refused() -> None:
    with pytest.raises(Exception, match=r"needs a tokenizer with a tokenizers backend, found PreTrainedTokenizerBase"):
        IncrementalText(PreTrainedTokenizerBase())
