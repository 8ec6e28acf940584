"""Marks in a model's text, such as ``<think>``: by their tokens where each is one token, which is exact, else by text.

A mark that the model spells with other tokens is text where it has a token of its own.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from outrider.contracts.requests import TagPlace


@dataclass(frozen=True, slots=True)
class Mark:
    text: str
    token_id: int | None = None  # None: it is no single token
    special: bool = False  # whether that is a special token, which has no text


@dataclass(frozen=True, slots=True)
class FoundMark:
    """A mark in a response. ``shown``: its text there, "" for special tokens, which have none."""

    mark: Mark
    shown: str
    begin: int  # in characters of the response
    index: int | None = None  # of its token; None: it was found in the text


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a response that is no mark; ``begin`` as of a mark."""

    shown: str
    begin: int


Part = Text | FoundMark


def end_of(part: Part) -> int:
    """In characters of the response."""
    return part.begin + len(part.shown)


def mark_in(backend: Tokenizer, text: str) -> Mark:
    token_id = backend.token_to_id(text)
    added = None if token_id is None else backend.get_added_tokens_decoder().get(token_id)
    return Mark(text, token_id, added is not None and added.special)


class MarkedText:
    """Splits one response's text at its marks, however the text is cut; each character is read a bounded time."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        known = tuple(marks)
        self._by_id = {mark.token_id: mark for mark in known if mark.token_id is not None}
        self._by_text = {mark.text: mark for mark in known if mark.token_id is None}
        self._pattern = re.compile("|".join(map(re.escape, self._by_text))) if self._by_text else None
        self._beginnings = tuple({mark.text[:length] for mark in known for length in range(1, len(mark.text))})
        self._longest = max((len(mark.text) for mark in known), default=1) - 1
        self._held, self._at = "", 0  # _at: where in the response's text what is held begins

    def push(self, text: str, places: Sequence[TagPlace] = (), begin: int | None = None) -> list[Part]:
        """Return the parts that this text completes.

        ``places`` are those whose text is complete by now; ``begin``: of this text, if not all of the response is read.
        """
        if begin is not None:
            self._at = begin - len(self._held)
        text, self._held = self._held + text, ""
        parts: list[Part] = []
        for place in places:
            if (mark := self._by_id.get(place.token_id)) is not None:
                begin, end = place.begin - self._at, place.end - self._at
                parts += (*self._spelled(text[:begin]), FoundMark(mark, text[begin:end], place.begin, place.index))
                text, self._at = text[end:], place.end
        found = self._spelled(text)
        kept = 0 if not found or not isinstance(found[-1], Text) else self._begun(found[-1].shown)
        if kept:
            last = found.pop()
            self._held = last.shown[-kept:]
            found += [Text(last.shown[:-kept], last.begin)] if len(last.shown) > kept else []
        self._at += len(text) - kept
        return parts + found

    def finish(self) -> list[Part]:
        """Return the held text: no more follows."""
        held, self._held = Text(self._held, self._at), ""
        self._at = end_of(held)
        return [held] if held.shown else []

    def _spelled(self, text: str) -> list[Part]:
        if self._pattern is None or not text:
            return [Text(text, self._at)] if text else []
        parts, at = list[Part](), 0
        for found in self._pattern.finditer(text):
            parts += [Text(text[at : found.start()], self._at + at)] if found.start() > at else []
            parts.append(FoundMark(self._by_text[found[0]], found[0], self._at + found.start()))
            at = found.end()
        return parts + ([Text(text[at:], self._at + at)] if at < len(text) else [])

    def _begun(self, text: str) -> int:
        """Length of the longest beginning of a mark that the text ends with."""
        tail = text[-self._longest :]
        return max((len(each) for each in self._beginnings if tail.endswith(each)), default=0)
