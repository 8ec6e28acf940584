"""State of a response in its grammar: a function of its output, which can be fed token by token and rolled back.

A *mask* says which tokens may follow: ``[words]`` uint32, bit ``i % 32`` of word ``i // 32`` is that of token ``i``.

Before the grammar begins (a reasoning prefix) all tokens are allowed except those that end a response. Where such a
prefix may be left out, its first token is allowed beside those of the grammar's beginning. After an end
only end tokens are allowed. In between they are allowed exactly where the grammar may end.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from outrider.grammar.blanks import BlankBound, JsonPlace

if TYPE_CHECKING:
    from llguidance import LLMatcher

Mask = npt.NDArray[np.uint32]
MASK_BITS = 32
_SLOW_S = 1e-3  # CPU time of a slow mask; usual ones take 20 to 100 us
_FORGIVEN = 32  # masks in a row that are not slow, after which a grammar counts as fast again


def bits_of(token_ids: Sequence[int], vocab_size: int) -> Mask:
    """Return the mask of some tokens; ids outside the vocabulary are skipped."""
    mask = np.zeros(-(-vocab_size // MASK_BITS), dtype=np.uint32)
    for token_id in token_ids:
        if 0 <= token_id < vocab_size:
            mask[token_id // MASK_BITS] |= np.uint32(1 << token_id % MASK_BITS)
    return mask


@dataclass(frozen=True, slots=True, eq=False)
class VocabularyMasks:
    """Masks over a whole vocabulary, ``[words]`` each: read-only, and shared by all responses of a tokenizer."""

    ends: frozenset[int]  # tokens that end a response
    only_ends: Mask
    all_but_ends: Mask
    everything: Mask

    @classmethod
    def of(cls, ends: Sequence[int], vocab_size: int) -> "VocabularyMasks":
        """Make the masks of a vocabulary with these end tokens; end tokens outside of it have no bit."""
        everything = np.full(-(-vocab_size // MASK_BITS), np.iinfo(np.uint32).max, dtype=np.uint32)
        if beyond := len(everything) * MASK_BITS - vocab_size:
            everything[-1] >>= np.uint32(beyond)
        only_ends = bits_of(ends, vocab_size)
        masks = only_ends, everything & ~only_ends, everything
        for mask in masks:
            mask.flags.writeable = False
        return cls(frozenset(ends), *masks)


class MaskCost:
    """Whether the masks of one grammar are slow; shared by its responses."""

    def __init__(self) -> None:
        self._usual = _FORGIVEN

    def took(self, mask_s: float) -> None:
        """Record the CPU time of a mask."""
        self._usual = 0 if mask_s > _SLOW_S else self._usual + 1

    @property
    def slow(self) -> bool:
        """Whether masks should be made in another thread: one of the last ones was slow."""
        return self._usual < _FORGIVEN


class GrammarState:
    """Grammar state of one response. Mutable, with a lock. ``cost`` is shared by the grammar's responses.

    A *fault* is a position after which the library cannot compute a mask, as that exceeds its limits. Only end tokens
    are allowed there, and the response is not valid. A fault after draft tokens matters only if these are committed: a
    response never depends on what was drafted.
    """

    def __init__(
        self,
        make_matcher: Callable[[], "LLMatcher"],
        vocabulary: VocabularyMasks,
        begins_after: int | None,
        cost: MaskCost | None = None,
        blanks: BlankBound | None = None,
        opened_by: int | None = None,
    ) -> None:
        """Start with an empty output.

        Args:
            make_matcher: makes a matcher that was fed nothing; its tokenizer's end tokens are those of ``vocabulary``.
            vocabulary: of the target.
            begins_after: the token after which the grammar begins; None: at once.
            cost: of the grammar's masks, shared with other responses.
            blanks: bound on white space; it forbids tokens where any other may follow.
            opened_by: the first token without which the grammar begins at once, after all; None: it does not.
        """
        self._opened_by = opened_by
        self._make_matcher, self._vocabulary = make_matcher, vocabulary
        self._begins_after, self._blanks = begins_after, blanks
        self._places = [JsonPlace()]  # with such a bound: at the beginning, and behind each token fed to the matcher
        self._matcher = make_matcher()
        self._begun_at = 0 if begins_after is None else None  # tokens fed before the grammar begins
        self._ended_at: int | None = None  # tokens fed before the first that ends
        self._tokens: list[int] = []  # fed, including those of a path that is being tried
        self.cost = cost or MaskCost()
        self._lock = threading.Lock()
        self._whole: tuple[LLMatcher, int] | None = None  # a copy made after the last fault, and the tokens it was fed
        self._known: dict[tuple[int, ...], Mask] = {}  # masks after the output and these tokens
        self._faults: dict[tuple[int, ...], str] = {}  # faults, likewise
        if self._matcher.is_error():
            self._faults[()] = self._matcher.get_error()

    def feed(self, token_ids: Sequence[int]) -> int:
        """Append output tokens up to the first that is not allowed; return how many were."""
        with self._lock:
            fault = self._faults.get(())
            self._known, self._faults = {}, {} if fault is None else {(): fault}
            taken = self._consume(token_ids)
            if taken < len(token_ids) and (said := self._renewed()):
                self._faults[()] = said
            return taken

    def keep(self, fed: int) -> None:
        """Roll back to the first ``fed`` output tokens."""
        with self._lock:
            if fed < len(self._tokens):
                self._known, self._faults = {}, {}
                self._back(fed)

    def prepare(self, paths: Sequence[Sequence[int]], within_s: float) -> bool:
        """Make masks after the output and each path; return whether all of them are known.

        No mask is begun after ``within_s`` of CPU time of this thread.
        """
        with self._lock:
            wanted = [tuple(path) for path in paths]
            before_s = began_s = time.thread_time()
            with closing(self._made(wanted if within_s > 0.0 else ())) as made:
                for _ in made:
                    now_s = time.thread_time()
                    self.cost.took(now_s - before_s)
                    if now_s - began_s >= within_s:
                        break
                    before_s = now_s
            return all(path in self._known for path in wanted)

    def masks(self, path: Sequence[int], first: int, rows: int) -> Mask:
        """Return ``[rows, words]``: row i is the mask after the output and ``path[: first + i]``.

        After a token that is not allowed all tokens are: that path is never committed.
        """
        with self._lock:
            paths = [tuple(path[:end]) for end in range(first, first + rows)]
            for _ in self._made(paths):
                pass
            return np.stack([self._known[each] for each in paths])

    def lawful(self, path: Sequence[int]) -> int:
        """Return how many leading tokens of a path are allowed after the output."""
        with self._lock:
            fed = len(self._tokens)
            try:
                return self._consume(path)
            finally:
                self._back_to(fed)

    def forced(self, most: int) -> tuple[int, ...]:
        """Return up to ``most`` tokens that have to follow the output: each is the only one that may.

        None where masks are slow: the library spells all of a forced text, however long.
        """
        with self._lock:
            fed, began_s = len(self._tokens), time.thread_time()
            if self._faults or self._begun_at is None or self._ended_at is not None or self.cost.slow:
                return ()
            try:
                found = tuple(self._matcher.compute_ff_tokens()[:most])
                return found[: self._consume(found)]
            finally:
                self._back_to(fed)
                self.cost.took(time.thread_time() - began_s)

    def fault(self, path: Sequence[int] = ()) -> str | None:
        """Return the fault after a beginning of ``path``, as far as masks were made there; None if there is none."""
        ends = range(len(path) + 1) if self._faults else ()
        return next((self._faults[at] for end in ends if (at := tuple(path[:end])) in self._faults), None)

    def _made(self, paths: Iterable[tuple[int, ...]]) -> Generator[None]:
        """Make unknown masks one by one; a path that extends the one before is continued without a rollback."""
        fed, position = len(self._tokens), tuple[int, ...]()
        try:
            for path in paths:
                if path in self._known:
                    continue
                if path[: len(position)] != position:
                    self._back_to(fed)
                    position = ()
                rest = path[len(position) :]
                lawful = self._consume(rest) == len(rest)
                self._known[path] = self._mask(path) if lawful else self._vocabulary.everything
                position = path
                if not lawful or self._matcher.is_error():
                    self._back_to(fed)
                    position = ()
                yield
        finally:
            self._back_to(fed)

    def _back_to(self, fed: int) -> None:
        self._back(fed)
        self._renewed()

    def _consume(self, token_ids: Sequence[int]) -> int:
        for count, token_id in enumerate(token_ids):
            if not self._take(token_id):
                return count
        return len(token_ids)

    def _take(self, token_id: int) -> bool:
        if self._may_open and token_id != self._opened_by:
            self._begun_at = 0
            if not self._take(token_id):
                self._begun_at = None
                return False
            return True
        if self._ended_at is not None:
            allowed = token_id in self._vocabulary.ends
        elif self._begun_at is None:
            allowed = token_id not in self._vocabulary.ends
            if token_id == self._begins_after:
                self._begun_at = len(self._tokens) + 1
        elif token_id in self._vocabulary.ends:
            allowed = self._matcher.is_accepting()
            self._ended_at = len(self._tokens) if allowed else None
        else:
            allowed = not self._is_too_blank(token_id) and self._matcher.try_consume_tokens([token_id]) == 1
            if allowed and self._blanks is not None:
                self._places.append(self._blanks.after(self._places[-1], token_id))
        if allowed:
            self._tokens.append(token_id)
        return allowed

    def _back(self, fed: int) -> None:
        fed_to_matcher = self._fed_to_matcher
        del self._tokens[fed:]
        if self._ended_at is not None and self._ended_at >= fed:
            self._ended_at = None
        left = self._fed_to_matcher
        if (too_many := fed_to_matcher - left) > 0:
            self._matcher.rollback(too_many)
            del self._places[left + 1 :]
        if self._whole is not None and self._whole[1] > left:
            self._whole = None
        if self._begins_after is not None and self._begun_at is not None and self._begun_at > fed:
            self._begun_at = None
        if self._opened_by is not None and fed == 0:
            self._begun_at = None

    @property
    def _may_open(self) -> bool:
        """Whether the first token decides if the grammar begins at once."""
        return self._opened_by is not None and self._begun_at is None and not self._tokens

    @property
    def _fed_to_matcher(self) -> int:
        if self._begun_at is None:
            return 0
        fed = len(self._tokens)
        return max(0, (fed if self._ended_at is None else min(fed, self._ended_at)) - self._begun_at)

    def _renewed(self) -> str:
        """Replace a matcher that failed, which is permanent; return its message, or "" if it has not failed."""
        if not self._matcher.is_error():
            return ""
        said = self._matcher.get_error() or "the matcher failed"
        fed, tokens = self._fed_to_matcher, self._tokens
        whole, had = self._whole or (None, 0)
        self._matcher = self._make_matcher() if whole is None else whole.deep_copy()
        if self._begun_at is not None:
            for token_id in tokens[self._begun_at + had : self._begun_at + fed]:
                self._matcher.try_consume_tokens([token_id])  # one by one: each call holds Python's lock
        if not self._matcher.is_error():
            self._whole = self._matcher.deep_copy(), fed  # drafts may lead to the same fault in each round
        return said

    def _mask(self, path: tuple[int, ...]) -> Mask:
        if () in self._faults or self._ended_at is not None:
            return self._vocabulary.only_ends
        if self._begun_at is None and not self._may_open:
            return self._vocabulary.all_but_ends
        mask = self._followers()
        if self._may_open and self._opened_by is not None:
            mask |= bits_of((self._opened_by,), len(mask) * MASK_BITS)
        if (forbidden := self._too_blank()) is not None and (rest := mask & ~forbidden).any():
            mask = rest
        if self._matcher.is_error() or not mask.any():
            self._faults[path] = self._matcher.get_error() or "no token may follow, and it may not end there"
            return self._vocabulary.only_ends
        return mask

    def _followers(self) -> Mask:
        """Return ``[words]``, the tokens that the matcher lets follow."""
        allowed = self._vocabulary.all_but_ends
        words = np.frombuffer(self._matcher.compute_bitmask(), dtype="<u4")[: len(allowed)]
        mask = np.zeros_like(allowed)
        np.bitwise_and(words, allowed[: len(words)], out=mask[: len(words)])
        if self._matcher.is_accepting():
            mask |= self._vocabulary.only_ends
        return mask

    def _too_blank(self) -> Mask | None:
        return None if self._blanks is None else self._blanks.forbidden(self._places[-1])

    def _is_too_blank(self, token_id: int) -> bool:
        """Whether a token is forbidden for its white space: it has too much, and another one may follow."""
        forbidden = self._too_blank()
        if forbidden is None or not forbidden[token_id // MASK_BITS] >> np.uint32(token_id % MASK_BITS) & np.uint32(1):
            return False
        return bool((self._followers() & ~forbidden).any())
