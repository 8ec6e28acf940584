"""Bounds on repetition in regular expressions and in Lark grammars, before anything is compiled of them.

What a repetition forces counts, so its least number: the library follows forced text to its end, and builds lazily what
may end before. That is bounded as it would be written out:
regular expressions and terminals by their length, in which terminals stand in place of their names. Rules refer to each
other instead, so of them only repetitions within repetitions are multiplied. Linear in the length of the text. Where
this reads a text otherwise than the library does, what bounds the cost is the process that compiles it.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

MAX_REPEATS = 10_000  # forced by one quantifier: a mask of 10 ms
MAX_WRITTEN_OUT = 65_536  # characters of a regular expression or symbols of a terminal, repetitions written out
MAX_NESTED_REPEATS = 1_000_000  # of rules or array items within each other: no context holds such a response

_QUANTIFIER = re.compile(r"\{\s*(\d*)\s*(?:(,)\s*(\d*)\s*)?\}")
_ESCAPE = re.compile(r"\\(?:[pPxuU]\{[^{}]*\}|b\{[^{}]*\}|.)", re.DOTALL)
_VERBOSE = re.compile(r"\(\?[a-wy-zA-Z]*x")
_TOKEN = re.compile(
    r"""
    (?P<skipped>\s+ | //[^\n]* | \#[^\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*"i?)
    | /(?P<regex>(?:[^/\\\n]|\\.)+)/[a-z]*
    | (?P<json>%json\s*)
    | (?P<repeat>\{\s*\d*\s*(?:,\s*\d*\s*)?\} | ~\s*\d+(?:\s*\.\.\s*\d+)?)
    | (?P<name>[^\W\d]\w*)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"\d+")
_LEAST_END = re.compile(r",|\.\.")
_MAX_DIGITS = 18
_MAX_ATTRIBUTE_TOKENS = 100  # of a rule; a longer search would make the whole quadratic

Node = TypeVar("Node", bound=Hashable)


class TooLargeError(ValueError):
    """A grammar asks for more than is compiled. The message ends with what was found."""

    def __init__(self, needed: str, found: str | float) -> None:
        self.needed, self.found = needed, found
        super().__init__(f"needs {needed}, found {found}")


def check_regex(pattern: str) -> int:
    """Refuse an expression that repeats too much; how many characters it has, repetitions written out.

    Raises:
        TooLargeError: one of its quantifiers is too large, or all of it written out.
    """
    size = _RepeatSizes(_written_out)
    verbose = _VERBOSE.search(pattern) is not None  # then brackets may stand in comments
    at, in_class = 0, False
    while at < len(pattern):
        char = pattern[at]
        quantifier = _QUANTIFIER.match(pattern, at) if char == "{" else None
        if char == "\\" and (escape := _ESCAPE.match(pattern, at)):
            at = escape.end()
            if not in_class:
                size.item(1)
            continue
        if quantifier and (verbose or not in_class):
            size.repeat(_times(quantifier.group()))
            at = quantifier.end()
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            size.item(1)
            at += 1 if pattern.startswith("]", at + 1) else 0  # one that comes first is a character
        elif char in "()":
            size.open() if char == "(" else size.close()
        else:
            size.item(1)
        at += 1
    _check_written_out(total := size.total())
    return total


def check_rules(text: str, check_schema: Callable[[object], None]) -> None:
    """Refuse a Lark grammar that repeats too much.

    Args:
        text: of the grammar.
        check_schema: is given each JSON schema in it, and refuses one likewise.

    Raises:
        TooLargeError: one of its repetitions is too large, those within each other, or a terminal written out.
    """
    for place in re.finditer(r"%json\s*", text):  # wherever it stands: a comment costs nothing, one overlooked a lot
        found = _json_at(text, place.end())
        if found is not None:
            check_schema(found[0])
    rules = {rule.name: rule for rule in _rules(text)}
    sizes: dict[str, int] = {}
    for name in postorder(rules, lambda name: (each for each in rules[name].names if each in rules)):
        rule = rules[name]
        sizes[name] = _size(rule, sizes)
        if rule.is_terminal:
            _check_written_out(sizes[name])
        elif sizes[name] > MAX_NESTED_REPEATS:
            raise TooLargeError(f"repetitions within each other of at most {MAX_NESTED_REPEATS}", sizes[name])


def check_count(name: str, count: float, most: int) -> None:
    """Refuse a count above its bound."""
    if count > most:
        raise TooLargeError(f"{name} of at most {most}", count)


def postorder(nodes: Iterable[Node], children: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """These nodes and all that they lead to, each behind its children, as far as these do not lead back to it.

    Without recursion: chains of references may be as long as a text.
    """
    begun: set[Node] = set()
    for first in nodes:
        path = [(first, iter(children(first)))] if first not in begun else []
        begun.add(first)
        while path:
            following = next((child for child in path[-1][1] if child not in begun), None)
            if following is None:
                yield path.pop()[0]
            else:
                begun.add(following)
                path.append((following, iter(children(following))))


@dataclass(slots=True)
class _Rule:
    name: str
    tokens: list[re.Match[str]] = field(default_factory=list)

    @property
    def is_terminal(self) -> bool:
        return self.name.isupper()

    @property
    def names(self) -> Iterator[str]:
        return (token["name"] for token in self.tokens if token.lastgroup == "name")


class _RepeatSizes:
    """Sizes of a sequence of items, groups and repetitions, as they are read from left to right."""

    def __init__(self, join: Callable[[int, int], int]) -> None:
        """``join``: the size of two items behind each other or beside each other."""
        self._join = join
        self._groups = [(0, 0)]  # of each open group: the size of all but its last item, and of that

    def item(self, size: int) -> None:
        before, last = self._groups[-1]
        self._groups[-1] = self._join(before, last), size

    def repeat(self, times: int) -> None:
        """The last item is there at least so many times."""
        check_count("repetitions", times, MAX_REPEATS)
        before, last = self._groups[-1]
        self._groups[-1] = before, last * max(times, 1)

    def open(self) -> None:
        self._groups.append((0, 0))

    def close(self) -> None:
        """It ends, and is an item; one that nobody began is none."""
        if len(self._groups) > 1:
            self.item(self._join(*self._groups.pop()))

    def total(self) -> int:
        """Of all of it, groups left open included."""
        while len(self._groups) > 1:
            self.close()
        return self._join(*self._groups[-1])


def _written_out(left: int, right: int) -> int:
    return left + right


def _check_written_out(size: int) -> None:
    if size > MAX_WRITTEN_OUT:
        raise TooLargeError(f"at most {MAX_WRITTEN_OUT} characters with its repetitions written out", size)


def _times(quantifier: str) -> int:
    """How often a quantifier repeats at least."""
    least = _NUMBER.search(_LEAST_END.split(quantifier)[0])
    if least is None:
        return 0
    if len(least.group().lstrip("0")) > _MAX_DIGITS:
        raise TooLargeError(f"repetitions of at most {MAX_REPEATS}", f"a number of {len(least.group())} digits")
    return int(least.group())


def _json_at(text: str, at: int) -> tuple[object, int] | None:
    """The JSON value that begins there, and where it ends."""
    try:
        value, length = json.JSONDecoder().raw_decode(text[at:])  # a slice: an error counts lines from the beginning
    except (ValueError, RecursionError):
        return None  # the library says what is wrong with it
    return value, at + length


def _rules(text: str) -> Iterator[_Rule]:
    """Rules and terminals, each with its tokens; JSON in them is left out."""
    rule, at = _Rule(""), 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None  # any character is a mark
        at = token.end()
        if token.lastgroup == "json":
            at = found[1] if (found := _json_at(text, at)) else at
        elif token.group() == ":" and (name := _defined(rule.tokens)) is not None:
            yield rule
            rule = _Rule(name)
        elif token.lastgroup != "skipped":
            rule.tokens.append(token)
    yield rule


def _defined(tokens: list[re.Match[str]]) -> str | None:
    """The name before a colon, which is taken out with its attributes: ``name[capture, max_tokens=5]:``."""
    at = len(tokens) - 1
    if at >= 0 and tokens[at].group() == "]":
        at = next((i for i in range(at, max(at - _MAX_ATTRIBUTE_TOKENS, 0), -1) if tokens[i].group() == "["), 0) - 1
    if at < 0 or tokens[at].lastgroup != "name":
        return None
    name = tokens[at]["name"]
    del tokens[at:]
    return name


def _size(rule: _Rule, sizes: Mapping[str, int]) -> int:
    """Written out, if it is a terminal; else the largest product of repetitions within each other."""
    sized = _RepeatSizes(_written_out if rule.is_terminal else max)
    for token in rule.tokens:
        kind, text = token.lastgroup, token.group()
        if kind == "repeat":
            sized.repeat(_times(text))
        elif kind == "regex":
            written_out = check_regex(token["regex"])
            sized.item(written_out if rule.is_terminal else 1)
        elif kind == "name":
            in_place = rule.is_terminal or not text.isupper()
            sized.item(sizes.get(text, 1) if in_place else 1)
        elif kind == "string":
            sized.item(1)
        elif text == "(":
            sized.open()
        elif text == ")":
            sized.close()
    return sized.total()
