"""Text of committed rounds, piece by piece; a token of the tiny tokenizer is a word."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.committed import CommittedRound
from outrider.contracts.requests import FinishReason, TextSpan, TokenOrigin
from outrider.text.shown import IncrementalText, Shown, shown
from tests.unit.engines.conftest import VOCAB
from tests.unit.serve_app.api.in_memory_service import TOKENIZER

VERIFIER, ACCEPTED, CORRECTION = TokenOrigin.VERIFIER, TokenOrigin.ACCEPTED, TokenOrigin.CORRECTION
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
Round = list[tuple[int, TokenOrigin]]
ROUNDS = st.lists(
    st.lists(st.tuples(st.integers(0, VOCAB - 1), st.sampled_from(TokenOrigin)), min_size=1, max_size=6),
    min_size=1,
    max_size=8,
)


def committed(tokens: Round, finish: FinishReason | None = None) -> CommittedRound:
    return CommittedRound(tuple(token for token, _ in tokens), finish, tuple(origin for _, origin in tokens))


def test_neighbours_of_one_origin_are_one_span() -> None:
    text = IncrementalText(TOKENIZER)
    assert shown(text, committed([(1, VERIFIER)])) == Shown((TextSpan("w1", VERIFIER),), 1, None)
    piece = shown(text, committed([(2, ACCEPTED), (3, ACCEPTED), (4, CORRECTION)]))
    assert piece == Shown((TextSpan(" w2 w3", ACCEPTED), TextSpan(" w4", CORRECTION)), 3, None)


def test_a_stop_string_swallows_what_is_behind_it() -> None:
    text = IncrementalText(TOKENIZER, ("w2",))
    piece = shown(text, committed([(1, ACCEPTED), (2, ACCEPTED), (3, CORRECTION)], LENGTH))
    assert piece == Shown((TextSpan("w1 ", ACCEPTED),), 2, STOP)


def test_what_a_stop_string_holds_back_comes_with_what_follows_or_at_the_end() -> None:
    text = IncrementalText(TOKENIZER, ("w2 never",))
    first = shown(text, committed([(1, VERIFIER), (2, ACCEPTED)]))
    assert first == Shown((TextSpan("w1", VERIFIER), TextSpan(" ", ACCEPTED)), 2, None)
    second = shown(text, committed([(5, CORRECTION), (2, ACCEPTED)]))
    assert second == Shown((TextSpan("w2 w5", CORRECTION), TextSpan(" ", ACCEPTED)), 2, None)
    assert shown(text, committed([(2, ACCEPTED)], LENGTH)) == Shown((TextSpan("w2 w2", ACCEPTED),), 1, LENGTH)


def test_a_round_may_commit_nothing() -> None:
    text = IncrementalText(TOKENIZER)
    shown(text, committed([(1, VERIFIER)]))
    assert shown(text, committed([])) == Shown((), 0, None)


@pytest.mark.parametrize("finish", [STOP, LENGTH])
@given(rounds=ROUNDS)
def test_pieces_add_up_to_the_text_of_all_tokens(rounds: list[Round], finish: FinishReason) -> None:
    text, last = IncrementalText(TOKENIZER), len(rounds) - 1
    pieces = [shown(text, committed(r, finish if i == last else None)) for i, r in enumerate(rounds)]
    tokens = [token for r in rounds for token, _ in r]
    assert "".join(span.text for piece in pieces for span in piece.spans) == TOKENIZER.decode(tokens)
    assert [piece.consumed for piece in pieces] == [len(r) for r in rounds]
    assert [piece.finish for piece in pieces] == [None] * last + [finish]
    assert text.shown_tokens == len(tokens)
    for piece in pieces:
        assert all(span.text for span in piece.spans)
        assert all(one.origin is not two.origin for one, two in pairwise(piece.spans))


@given(rounds=ROUNDS, stop=st.integers(0, VOCAB - 1))
def test_rounds_end_at_the_first_stop_string(rounds: list[Round], stop: int) -> None:
    text, tokens = IncrementalText(TOKENIZER, (f"w{stop} ", f"w{stop}\n")), [token for r in rounds for token, _ in r]
    taken, told = 0, ""
    for i, r in enumerate(rounds):
        piece = shown(text, committed(r, LENGTH if i == len(rounds) - 1 else None))
        taken += piece.consumed
        told += "".join(span.text for span in piece.spans)
        if piece.finish is not None:
            break
    stopped = stop in tokens[:-1]  # it is complete with the space in front of the next token
    assert piece.finish is (STOP if stopped else LENGTH)
    assert taken == (tokens.index(stop) + 2 if stopped else len(tokens))
    whole = TOKENIZER.decode(tokens)
    assert told == (whole[: f" {whole} ".index(f" w{stop} ")] if stopped else whole)


@given(ROUNDS, st.sampled_from([(), ("w3 w4",), ("w2",)]))
def test_every_token_that_counts_has_a_piece_and_together_they_are_what_is_shown(
    rounds: list[Round], stop: tuple[str, ...]
) -> None:
    text = IncrementalText(TOKENIZER, stop)
    for number, tokens in enumerate(rounds, start=1):
        piece = shown(text, committed(tokens, LENGTH if number == len(rounds) else None))
        pieces = piece.pieces()
        assert [each.origin for each in pieces] == [origin for _, origin in tokens[: piece.consumed]]
        assert "".join(each.text for each in pieces) == "".join(span.text for span in piece.spans)
        if piece.finish is not None:
            break
