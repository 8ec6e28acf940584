"""Compile validated grammars, and make the initial states of responses. Bounded in time and memory.

Compiling takes about a millisecond, at worst what ``parser_limits`` allows. It runs in a thread of its own, without
Python's lock. Compiled grammars are cached by their text; each response uses a copy.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outrider.contracts.requests import Grammar
from outrider.fair_queueing.worker import FairWorker
from outrider.grammar.blanks import BlankBound, BlankTokens, blank_bound
from outrider.grammar.state import GrammarState, MaskCost, VocabularyMasks
from outrider.grammar.validating import STACK_BYTES, parser_limits

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_KEPT = 32  # compiled grammars, of at most ``MAX_COMPILED_BYTES`` each plus the lexer states that responses visited

_TURN_S = 0.02  # of making masks for one account before the next one's turn

MakeTokens = Callable[[], "LLTokenizer"]


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """A grammar. ``matcher`` is never fed, only copied; ``account`` is the one it was first compiled for."""

    matcher: "LLMatcher"
    account: str
    blanks: BlankBound | None
    cost: MaskCost = field(default_factory=MaskCost)


class Grammars:
    """Grammars of one tokenizer: one thread reads its tokens at the start, another compiles grammars."""

    def __init__(self, make_tokens: MakeTokens, ends: Sequence[int], vocab_size: int) -> None:
        """Start to read the tokens: ``make_tokens`` takes about a second in another thread; ``ends`` end a response."""
        self._make_tokens, self._vocabulary = make_tokens, VocabularyMasks.of(ends, vocab_size)
        self._vocab_size = vocab_size
        self._tokens: LLTokenizer | None = None
        self._blank_tokens: BlankTokens | None = None
        self._failure: Exception | None = None
        # In order of use, the least recent first. Only the worker's thread accesses it.
        self._compiled: OrderedDict[str, _Compiled] = OrderedDict()
        self._worker, self._masks = (
            FairWorker("grammar-compiler", stack_bytes=4 * STACK_BYTES),
            FairWorker("grammar-masks"),
        )
        self._thread = threading.Thread(target=self._learn, name="grammar-tokens", daemon=True)
        self._thread.start()

    @classmethod
    def of_tokenizer(cls, tokenizer_json: str, ends: Sequence[int], vocab_size: int) -> "Grammars":
        """Make the grammars of a tokenizer in the form of ``tokenizer.json``."""

        def make_tokens() -> "LLTokenizer":
            from llguidance import LLTokenizer  # noqa: PLC0415 (takes a while)

            return LLTokenizer(tokenizer_json, n_vocab=vocab_size, eos_token=list(ends))

        return cls(make_tokens, ends, vocab_size)

    def begin(self, grammar: Grammar, output_ids: Sequence[int] = ()) -> GrammarState:
        return self.open(grammar, output_ids).result()

    def open(self, grammar: Grammar, output_ids: Sequence[int] = (), account: str = "") -> "Future[GrammarState]":
        """Compile a grammar and feed it a response's output, in another thread.

        The resulting state may be used in any thread. An invalid grammar gives a fault (``GrammarState.fault``), not an
        exception; the future has one only if the tokenizer's tokens cannot be read. Accounts take turns: an account
        that opens many delays another one by at most one of them.
        """
        return self._worker.submit(lambda: self._begun(grammar, output_ids, account), account)

    def prepare(self, state: GrammarState, paths: Sequence[Sequence[int]], account: str = "") -> "Future[bool]":
        """Make masks in another thread (``GrammarState.prepare``), as many as fit into one turn of the account."""
        return self._masks.submit(lambda: state.prepare(paths, _TURN_S), account)

    def _begun(self, grammar: Grammar, output_ids: Sequence[int], account: str) -> GrammarState:
        compiled = self._compiled_for(grammar.text, account)
        matcher, blanks = compiled.matcher, compiled.blanks
        state = GrammarState(
            *(matcher.deep_copy, self._vocabulary, grammar.begins_after, compiled.cost, blanks, grammar.opened_by)
        )
        state.feed(output_ids)
        state.masks((), 0, 1)  # the first one takes longest (33 ms with 1,500 properties); it is cached
        return state

    def _compiled_for(self, text: str, account: str) -> "_Compiled":
        from llguidance import LLMatcher  # noqa: PLC0415 (takes a while)

        if text not in self._compiled:
            self._thread.join()
            if self._tokens is None or self._blank_tokens is None:
                raise RuntimeError("the tokenizer's tokens could not be read") from self._failure
            matcher = LLMatcher(self._tokens, text, log_level=0, limits=parser_limits())
            self._compiled[text] = _Compiled(matcher, account, blank_bound(text, self._blank_tokens))
            if len(self._compiled) > _KEPT:
                self._forget_one()
        self._compiled.move_to_end(text)
        return self._compiled[text]

    def _forget_one(self) -> None:
        """Forget the least recently used grammar of the account with most, so that accounts do not evict each other."""
        counts = Counter(compiled.account for compiled in self._compiled.values())
        most = max(counts.values())
        del self._compiled[next(text for text, compiled in self._compiled.items() if counts[compiled.account] == most)]

    def _learn(self) -> None:
        try:
            self._tokens = tokens = self._make_tokens()
            self._blank_tokens = BlankTokens(lambda token_id: tokens.decode_bytes([token_id]), self._vocab_size)
        except Exception as error:  # noqa: BLE001 (raised again where the tokens are needed)
            self._failure = error
