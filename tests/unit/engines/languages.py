"""Grammars of so few sentences that what they allow can be counted out, over tokens of a few characters."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from outrider.contracts.requests import Grammar
from outrider.grammar.compiling import Grammars

if TYPE_CHECKING:
    from llguidance import LLTokenizer

# Not forcing: where only one text can follow, the library would allow only the tokens its tokenizer makes of that.
_NOT_FORCING = '%llguidance {"no_forcing": true}\n'


class Language:
    """A grammar, and all that it allows.

    Attributes:
        grammar: begun at once.
        sentences: all of it.
    """

    def __init__(self, rules: str, sentences: frozenset[str], texts: Sequence[str | None], end: int) -> None:
        """Of rules.

        Args:
            rules: in Lark's form.
            sentences: what they say, counted out by other means.
            texts: of each token; None for those that are in no sentence.
            end: the token that ends a response.
        """
        self.grammar, self.sentences = Grammar(_NOT_FORCING + rules), sentences
        self._texts, self._end = tuple(texts), end
        self._beginnings = frozenset(s[:length] for s in sentences for length in range(len(s) + 1))

    def text_of(self, output: Sequence[int]) -> str:
        """What tokens spell."""
        return "".join(self._texts[token_id] or "" for token_id in output)

    def allowed(self, begins_after: int | None, output: Sequence[int]) -> npt.NDArray[np.bool_]:
        """``[vocab]``, what may follow by the definition: any token of which some sentence goes on."""
        allowed = np.zeros(len(self._texts), dtype=np.bool_)
        output = list(output)
        if begins_after is not None:
            if begins_after not in output:
                allowed[:] = True
                allowed[self._end] = False
                return allowed
            output = output[output.index(begins_after) + 1 :]
        if self._end in output:
            allowed[self._end] = True
            return allowed
        said = self.text_of(output)
        if said not in self._beginnings or any(self._texts[token_id] is None for token_id in output):
            allowed[:] = True  # behind what is forbidden: nobody may care
            return allowed
        allowed[:] = [text is not None and said + text in self._beginnings for text in self._texts]
        allowed[self._end] = said in self.sentences
        return allowed


class _Tokens:
    """As the library wants a tokenizer."""

    bos_token_id = None

    def __init__(self, texts: Sequence[str | None], end: int) -> None:
        self.eos_token_id = end
        self.tokens = [text.encode() if text is not None else b"\xff[%d]" % i for i, text in enumerate(texts)]
        self.special_token_ids = [i for i, text in enumerate(texts) if text is None]

    def __call__(self, text: bytes) -> list[int]:
        return [self.tokens.index(bytes([byte])) for byte in text if bytes([byte]) in self.tokens]


@cache
def grammars_over(texts: tuple[str | None, ...], end: int) -> Grammars:
    """Compiles grammars over these tokens."""

    def make_tokens() -> "LLTokenizer":
        from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415 (takes a while)

        return LLTokenizer(TokenizerWrapper(_Tokens(texts, end)), eos_token=[end])

    return Grammars(make_tokens, (end,), len(texts))


LANGUAGES: dict[str, Language] = {}  # by their grammars' texts


def counted(language: Language) -> Language:
    """Let ``allowed_by`` know it."""
    LANGUAGES[language.grammar.text] = language
    return language


def allowed_by(grammar: Grammar, output: Sequence[int]) -> npt.NDArray[np.bool_]:
    """What may follow an output by the definition; only languages that were counted out have one."""
    language, opens = LANGUAGES[grammar.text], grammar.opened_by
    if opens is None or output[:1] == [opens]:
        return language.allowed(grammar.begins_after, output)
    allowed = language.allowed(None, output)
    if not output:
        allowed[opens] = True
    return allowed
