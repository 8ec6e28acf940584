"""Tokens of the tiny models as texts, and a grammar of so few sentences that what it allows can be counted out."""

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt

from outrider.contracts.requests import Grammar
from outrider.grammar.compiling import Grammars

VOCAB = 97
END = VOCAB - 1
THINK_END = VOCAB - 2  # ends a reasoning prefix
_WORDS = ("ye", "es", "no", "may", "be", ", ", " really", "42")
_UNUSED = "QRSTUVWX"  # gave their places to words; without any other character a sentence could not be completed
TEXTS = [*(chr(code) for code in range(32, 127) if chr(code) not in _UNUSED), *_WORDS]
assert len(TEXTS) == THINK_END

_PARTS = (("yes", "no", "maybe"), (", ", " , "), (*map(str, range(100)), "007"), ("", " really", " really really"))
SENTENCES = frozenset(map("".join, product(*_PARTS)))
# Not forcing: where only one text can follow, the library would allow only the tokens its tokenizer makes of that.
_RULE = 'start: ("yes" | "no" | "maybe") " "? ", " ( /[1-9]?[0-9]/ | "007" ) (" really"){0,2}'
TOY = Grammar(f'%llguidance {{"no_forcing": true}}\n{_RULE}')


class _Tokens:
    """As the library wants a tokenizer."""

    eos_token_id, bos_token_id = END, None
    tokens = (*(text.encode() for text in TEXTS), b"\xff[95]", b"\xff[96]")
    special_token_ids = (THINK_END, END)

    def __call__(self, text: bytes) -> list[int]:
        return [TEXTS.index(chr(byte)) for byte in text if chr(byte) in TEXTS]


@cache
def toy_grammars() -> Grammars:
    """Over the tiny models' tokens."""

    def make_tokens():  # type: ignore[no-untyped-def]  # noqa: ANN202 (the library's)
        from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415

        return LLTokenizer(TokenizerWrapper(_Tokens()), eos_token=[END])

    return Grammars(make_tokens, (END,), VOCAB)


@cache
def _beginnings() -> frozenset[str]:
    return frozenset(sentence[:end] for sentence in SENTENCES for end in range(len(sentence) + 1))


def text_of(output: Sequence[int]) -> str:
    """What tokens spell."""
    return "".join(TEXTS[token_id] for token_id in output if token_id < THINK_END)


def toy_allowed(grammar: Grammar, output: Sequence[int]) -> npt.NDArray[np.bool_]:
    """``[VOCAB]``, what may follow by the definition: any token of which some sentence goes on."""
    assert grammar.text == TOY.text, "only this one can be counted out"
    allowed = np.zeros(VOCAB, dtype=np.bool_)
    output = list(output)
    if grammar.begins_after is not None:
        if grammar.begins_after not in output:
            allowed[:END] = True
            return allowed
        output = output[output.index(grammar.begins_after) + 1 :]
    if END in output:
        allowed[END] = True
        return allowed
    text = text_of(output)
    if text not in _beginnings():
        allowed[:] = True  # behind what is forbidden: nobody may care
        return allowed
    allowed[:THINK_END] = [text + more in _beginnings() for more in TEXTS]
    allowed[END] = text in SENTENCES
    return allowed
