"""Where a response stands in its grammar: a function of its output, however it came there."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from llguidance import LLMatcher, LLParserLimits

from outrider.contracts.requests import Grammar
from outrider.grammar.compiling import Grammars
from outrider.grammar.state import GrammarState, Mask, VocabularyMasks, bits_of
from outrider.grammar.texts import nesting, of_json_schema, of_regex
from outrider.grammar.validating import fault_of
from tests.unit.engines.languages import allowed_by
from tests.unit.engines.toy_grammar import END, TEXTS, THINK_END, TOY, VOCAB, toy_grammars

LATER = replace(TOY, begins_after=THINK_END)
MAYBE = replace(LATER, opened_by=TEXTS.index("#"))  # with reasoning or without


def allowed_tokens(masks: Mask) -> npt.NDArray[np.bool_]:
    """``[..., VOCAB]`` of masks ``[..., words]``."""
    octets = np.ascontiguousarray(masks).astype("<u4", copy=False).view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=VOCAB, bitorder="little").view(np.bool_)


def allowed(state: GrammarState, path: tuple[int, ...] = ()) -> list[int]:
    mask = state.masks(path, len(path), 1)[0]
    return [int(token_id) for token_id in np.flatnonzero(allowed_tokens(mask))]


@pytest.mark.parametrize("grammar", [TOY, LATER, MAYBE])
def test_masks_are_those_of_the_definition_however_it_came_there(grammar: Grammar) -> None:
    """Fed, taken back, looked ahead in lawful and unlawful directions, in random order."""
    rng, ends = random.Random(0), 0
    for _ in range(20):
        state, output = toy_grammars().begin(grammar), list[int]()
        for _ in range(40):
            if output and rng.random() < 0.3:
                kept = rng.randrange(len(output))
                state.keep(kept)
                del output[kept:]
            choices = allowed(state)
            assert choices == np.flatnonzero(allowed_by(grammar, output)).tolist()
            token_id = THINK_END if rng.random() < 0.2 and THINK_END in choices else rng.choice(choices)
            path = (token_id, *rng.choices(range(VOCAB), k=3))
            lawful = state.lawful(path)
            assert lawful >= 1
            if lawful < len(path):
                assert not allowed_by(grammar, [*output, *path[:lawful]])[path[lawful]]
            for end in range(lawful + 1):
                expected = np.flatnonzero(allowed_by(grammar, [*output, *path[:end]])).tolist()
                assert allowed(state, path[:end]) == expected
            assert state.feed(path[:1]) == 1
            output.append(token_id)
            ends += token_id == END
    assert ends > 5


def test_what_is_forced_is_all_that_is_allowed() -> None:
    schema = {"properties": {"name": {"enum": ["Bob", "Eve"]}, "old": {"type": "boolean"}}, "required": ["name", "old"]}
    grammar, rng, most = Grammar(of_json_schema({"type": "object", **schema})), random.Random(1), 0
    for _ in range(5):
        state = toy_grammars().begin(grammar)
        for _ in range(12):
            forced = state.forced(5)
            for end in range(len(forced)):
                assert allowed(state, forced[:end]) == [forced[end]]
            assert state.forced(0) == ()
            most = max(most, len(forced))
            state.feed([*forced, rng.choice(allowed(state, forced))])
    assert 1 < most <= 5


def test_masks_are_made_one_by_one_and_not_behind_a_time() -> None:
    path = [_token(char) for char in "no, "]
    paths = [path[:end] for end in range(4)]
    state, beside = (toy_grammars().begin(TOY) for _ in range(2))
    assert not state.prepare(paths, 0.0)
    assert [beside.prepare(paths, 1e-9) for _ in range(3)] == [False, False, True], "any takes longer; one is known"
    assert state.prepare(paths, math.inf)
    assert state.prepare(paths, 0.0), "all is known"
    assert (state.masks(path, 0, 4) == beside.masks(path, 0, 4)).all()
    assert state.feed(path[:1]) == 1
    assert not state.prepare(paths[:2], 0.0), "it is somewhere else now"


def test_it_is_fed_up_to_what_is_forbidden() -> None:
    state = toy_grammars().begin(TOY)
    assert state.feed([END, 5]) == 0
    assert state.fault() is None
    assert END not in allowed(state)


class Counting:
    """A matcher that counts the tokens it and its copies take in."""

    def __init__(self, matcher: LLMatcher, taken: list[int]) -> None:
        self._matcher, self._taken = matcher, taken

    def __getattr__(self, name: str) -> object:
        """All else is the matcher's."""
        return getattr(self._matcher, name)

    def deep_copy(self) -> "Counting":
        return Counting(self._matcher.deep_copy(), self._taken)

    def try_consume_tokens(self, token_ids: list[int]) -> int:
        self._taken += token_ids
        return self._matcher.try_consume_tokens(token_ids)


def limited(begins: str) -> Callable[[], LLMatcher]:
    """Matchers of a grammar that begins so, and then goes on behind "a"; behind "b" it takes too much."""
    grammars = toy_grammars()
    grammars.begin(TOY)  # its tokens are there then
    limits = LLParserLimits(step_max_items=160, verbose_errors=False)
    text = f'start: {begins}("a" cheap | "b" dear)\ncheap: "c"*\ndear: ' + " | ".join(
        f'("{chr(99 + i)}" "x"? "y"? "z"? "u"? "v"? "w"?)*' for i in range(20)
    )

    def matcher() -> LLMatcher:
        tokens = grammars._tokens  # noqa: SLF001 (the library's own)
        assert tokens is not None
        return LLMatcher(tokens, text, log_level=0, limits=limits)

    return matcher


def test_a_draft_that_takes_too_much_spoils_no_other() -> None:
    """The library gives up behind one draft: there, and only there, the state says so."""
    state = GrammarState(limited(""), VocabularyMasks.of((END,), VOCAB), None)
    a, b, c = (_token(char) for char in "abc")
    assert b in allowed(state)
    dear = allowed(state, (b,))
    assert dear == [END]
    assert state.fault((b,)) is not None
    assert state.fault((a,)) is None
    assert set(allowed(state, (a,))) == {c, END}
    assert state.feed([a, c]) == 2
    assert state.fault() is None


def test_a_draft_that_takes_too_much_in_each_round_does_not_have_all_output_read_again() -> None:
    taken, rounds = list[int](), 20
    matcher: Any = Counting(limited('"0"{0,25} ')(), taken)
    state = GrammarState(matcher.deep_copy, VocabularyMasks.of((END,), VOCAB), None)
    b, zero = _token("b"), _token("0")
    for _ in range(rounds):
        assert allowed(state, (b,)) == [END]
        assert state.fault((b,)) is not None
        assert state.feed([zero]) == 1
    assert len(taken) <= 4 * rounds
    state.keep(3)
    assert allowed(state, (b,)) == [END]
    assert state.feed([zero] * 23) == 22


def _token(char: str) -> int:
    from tests.unit.engines.toy_grammar import TEXTS  # noqa: PLC0415

    return TEXTS.index(char)


def test_a_tokenizer_that_cannot_be_read_is_told_to_who_asks() -> None:
    def fails() -> None:
        raise ValueError("no tokens")

    with pytest.raises(RuntimeError, match="could not be read"):
        Grammars(fails, (END,), VOCAB).begin(TOY)  # type: ignore[arg-type]


def test_what_is_wrong_with_a_grammar_is_said() -> None:
    assert fault_of(TOY.text) is None
    assert "unclosed" in (fault_of(of_regex("(a")) or "")


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 64, VOCAB])
def test_masks_of_a_whole_vocabulary(vocab_size: int) -> None:
    ends = (0, vocab_size - 1, vocab_size, 10**9)
    masks, others = VocabularyMasks.of(ends, vocab_size), range(1, vocab_size - 1)
    assert masks.everything.tolist() == bits_of(range(vocab_size), vocab_size).tolist()
    assert masks.only_ends.tolist() == bits_of([0, vocab_size - 1], vocab_size).tolist()
    assert masks.all_but_ends.tolist() == bits_of(others, vocab_size).tolist()
    with pytest.raises(ValueError, match="read-only"):
        masks.everything[0] = 0  # responses share them


def test_bits_and_brackets() -> None:
    assert np.flatnonzero(allowed_tokens(bits_of([0, 33, 96, 97, -1], VOCAB))).tolist() == [0, 33, 96]
    assert nesting('{"a": [{"b[[[": 1}]}') == 3
    assert nesting('"\\"[" [') == 1
