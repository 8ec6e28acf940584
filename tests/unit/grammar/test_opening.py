"""What it costs the thread that opens responses to have them constrained: next to nothing, whatever the grammar is."""

import json
import threading
import time
from dataclasses import replace
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from outrider.contracts.requests import Grammar
from outrider.grammar.compiling import _KEPT, Grammars
from outrider.grammar.state import VocabularyMasks
from tests.unit.engines.languages import grammars_over
from tests.unit.engines.toy_grammar import _TOKENS, END, TOY

LARGE_VOCAB = 262_144  # of Gemma
RESPONSES = 64
WAIT_S = 60.0


def large_grammars() -> Grammars:
    """Over a vocabulary of that size, most of whose tokens have no text."""

    def make_tokens() -> LLTokenizer:
        from llguidance import TokenizerWrapper  # noqa: PLC0415

        from tests.unit.engines.languages import _Tokens  # noqa: PLC0415

        return LLTokenizer(TokenizerWrapper(_Tokens(_TOKENS, END)), n_vocab=LARGE_VOCAB, eos_token=[END])

    return Grammars(make_tokens, (END,), LARGE_VOCAB)


def test_opening_many_takes_the_callers_thread_next_to_no_time() -> None:
    grammars = large_grammars()
    grammars.begin(TOY)
    schema = {"type": "object", "properties": {f"property_{i}": {"type": "integer"} for i in range(300)}}
    unknown = Grammar(LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    began_s = time.thread_time()
    opened = [grammars.open(TOY) for _ in range(RESPONSES - 1)]
    opened.append(grammars.open(unknown))
    took_s = time.thread_time() - began_s
    states = [each.result(WAIT_S) for each in opened]
    assert took_s < 0.1, "2 ms here; a mask of that vocabulary in Python alone takes 0.1 s"
    assert not any(state.fault() for state in states)
    assert states[0].masks((), 0, 1).shape == (1, LARGE_VOCAB // 32)
    vocabularies = {id(state._vocabulary) for state in states}  # noqa: SLF001
    assert len(vocabularies) == 1, "masks of the whole vocabulary are shared"
    assert isinstance(states[0]._vocabulary, VocabularyMasks)  # noqa: SLF001


def test_grammars_are_compiled_and_their_first_masks_made_in_another_thread() -> None:
    threads = list[str]()

    class Noting:
        """A matcher that notes who has it work."""

        def __init__(self, matcher: LLMatcher) -> None:
            self._matcher = matcher

        def __getattr__(self, name: str) -> object:
            if name in ("deep_copy", "compute_bitmask", "try_consume_tokens"):
                threads.append(threading.current_thread().name)
            found = getattr(self._matcher, name)
            return (lambda: Noting(found())) if name == "deep_copy" else found

    grammars = grammars_over(_TOKENS, END)
    grammars.begin(TOY)
    noting: Any = Noting(grammars._compiled[TOY.text].matcher)  # noqa: SLF001
    grammars._compiled[TOY.text] = replace(grammars._compiled[TOY.text], matcher=noting)  # noqa: SLF001
    try:
        state = grammars.open(TOY, [ord("n") - 32]).result(WAIT_S)
        assert threads == ["grammar-compiler"] * len(threads)
        made = len(threads)
        assert made >= 3
        assert state.masks((), 0, 1).any()
        assert len(threads) == made, "the first mask is known"
    finally:
        del grammars._compiled[TOY.text]  # noqa: SLF001


def test_an_account_that_opens_many_is_not_before_another() -> None:
    grammars = grammars_over(_TOKENS, END)
    grammars.begin(TOY)
    many = [Grammar(f'start: "a"{{0,{2000 + i}}}') for i in range(40)]
    hostile = [grammars.open(each, account="many") for each in many]
    assert grammars.open(TOY, account="one").result(WAIT_S).fault() is None
    assert not hostile[-1].done(), "most of the others come behind it"
    for each in hostile:
        each.cancel()


def test_an_account_with_many_grammars_takes_no_place_of_anothers() -> None:
    grammars = grammars_over(_TOKENS, END)
    first = Grammar('start: "n" "o"')
    grammars.open(first, account="one").result(WAIT_S)
    for i in range(2 * _KEPT):
        last = Grammar(f'start: "a"{{0,{i + 2}}}')
        grammars.open(last, account="many").result(WAIT_S)
    assert len(grammars._compiled) == _KEPT  # noqa: SLF001
    assert {first.text, last.text} <= grammars._compiled.keys()  # noqa: SLF001
