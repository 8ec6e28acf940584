"""Tokens of the tiny models as texts, and a grammar of so few sentences that what it allows can be counted out."""

from collections.abc import Sequence
from itertools import product

from outrider.grammar.compiling import Grammars
from tests.unit.engines.languages import Language, counted, grammars_over

VOCAB = 97
END = VOCAB - 1
THINK_END = VOCAB - 2  # ends a reasoning prefix
_WORDS = ("ye", "es", "no", "may", "be", ", ", " really", "42")
_UNUSED = "QRSTUVWX"  # gave their places to words; without any other character a sentence could not be completed
TEXTS = [*(chr(code) for code in range(32, 127) if chr(code) not in _UNUSED), *_WORDS]
assert len(TEXTS) == THINK_END
_TOKENS = (*TEXTS, None, None)

_PARTS = (("yes", "no", "maybe"), (", ", " , "), (*map(str, range(100)), "007"), ("", " really", " really really"))
SENTENCES = frozenset(map("".join, product(*_PARTS)))
_RULE = 'start: ("yes" | "no" | "maybe") " "? ", " ( /[1-9]?[0-9]/ | "007" ) (" really"){0,2}'
_LANGUAGE = counted(Language(_RULE, SENTENCES, _TOKENS, END))
TOY = _LANGUAGE.grammar


def toy_grammars() -> Grammars:
    """Over the tiny models' tokens."""
    return grammars_over(_TOKENS, END)


def text_of(output: Sequence[int]) -> str:
    """What tokens spell."""
    return _LANGUAGE.text_of(output)
