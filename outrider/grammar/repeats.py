"""Bounds on repetition in regular expressions and Lark grammars, checked before anything is compiled.

Only the least count of a repetition matters: the library follows forced text to its end, and builds optional text
lazily. Regular expressions and terminals are bounded by their length with repetitions written out and names replaced by
their terminals. Rules refer to each other, so only the product of nested repetitions is bounded. Linear in the length
of the text. Where this parser reads a text differently than the library does, the process that compiles it bounds the
cost.
"""

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from outrider.grammar.places import GrammarSyntaxError, Rewritten

MAX_REPEATS = 10_000  # least count of one quantifier; a mask then takes 10 ms
MAX_WRITTEN_OUT = 65_536  # characters of a regular expression, or symbols of a terminal, with repetitions written out
MAX_NESTED_REPEATS = 1_000_000  # product of nested repetitions or array items; no context holds such a response

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
_PART = re.compile(
    r"""
    (?P<open>\((?:\?(?:P?<[^>]{0,64}>|[a-zA-Z-]*:))?)
    | (?P<close>\))
    | (?P<counted>\{\s*\d*\s*(?:,\s*\d*\s*)?\})
    | (?P<many>[*+])
    | (?P<nothing>[?|^$])
    | (?P<item>\\(?:[pPxuU]\{[^{}]*\}|x\w{2}|u\w{4}|U\w{8}|.) | \[\^?\]?(?:[^\]\\]|\\.)*\] | .)
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"\d+")
_LEAST_END = re.compile(r",|\.\.")
_MAX_DIGITS = 18
_MAX_ATTRIBUTE_TOKENS = 100  # of a rule; an unbounded search would be quadratic

Node = TypeVar("Node", bound=Hashable)


class TooLargeError(ValueError):
    """A grammar exceeds a bound. The message ends with what was found."""

    def __init__(self, needed: str, found: str | float) -> None:
        self.needed, self.found = needed, found
        super().__init__(f"needs {needed}, found {found}")


def check_regex(pattern: str) -> int:
    """Check the repetitions of an expression (``TooLargeError``); return its length with these written out."""
    size = _RepeatSizes(_written_out)
    verbose = _VERBOSE.search(pattern) is not None  # then comments may contain brackets, so classes are not trusted
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
            at += 1 if pattern.startswith("]", at + 1) else 0  # "]" as the first character does not end the class
        elif char in "()":
            size.open() if char == "(" else size.close()
        else:
            size.item(1)
        at += 1
    _check_written_out(total := size.total())
    return total


def longest(pattern: str) -> int | None:
    """Return a number of characters that no text matched by a valid expression exceeds; None: there is none."""
    if _VERBOSE.search(pattern):
        return None
    groups = [(0.0, 0.0)]  # of each open group: the number without its last item, and that item's
    for part in _PART.finditer(pattern):
        kind, (before, last) = part.lastgroup, groups[-1]
        if kind == "open":
            groups.append((0.0, 0.0))
        elif kind == "close" and len(groups) > 1:
            groups.pop()
            groups[-1] = sum(groups[-1]), before + last
        elif kind == "counted":
            most = _most(part.group())
            groups[-1] = before, last * most if most and last else 0.0
        elif kind == "many":
            groups[-1] = before, math.inf if last else 0.0
        elif kind == "item":
            groups[-1] = before + last, 1.0
    total = sum(map(sum, groups))
    return None if math.isinf(total) else int(total)


def check_rules(text: str, check_schema: Callable[[object], None]) -> None:
    """Check the repetitions of a Lark grammar, and each JSON schema in it by ``check_schema``.

    A repetition, a product of nested ones, or a written-out terminal that is too large is a ``TooLargeError``.
    """
    for place in re.finditer(r"%json\s*", text):  # also in comments: a missed schema would cost more than a check
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


def replace_json(text: str, replaced: Callable[[object], object]) -> Rewritten:
    """Replace each JSON schema in rules; ``%json`` without JSON is a ``GrammarSyntaxError``."""
    written, begins, pieces, at, kept = list[str](), list[int](), list[tuple[int, int, int]](), 0, 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None  # any character is a mark
        at = token.end()
        if token.lastgroup != "json":
            continue
        try:
            value, end = json.JSONDecoder().raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise GrammarSyntaxError(text, error.pos, f"JSON behind %json ({error.msg})") from None
        written += [text[kept:at], json.dumps(replaced(value), allow_nan=False)]
        begins.append(sum(map(len, written[-2:-1])) + (pieces[-1][0] if pieces else 0))
        pieces.append((begins[-1] + len(written[-1]), at, end))
        at = kept = end
    return Rewritten("".join([*written, text[kept:]]), text, tuple(begins), tuple(pieces))


def check_count(name: str, count: float, most: int) -> None:
    """Raise ``TooLargeError`` for a count above ``most``."""
    if count > most:
        raise TooLargeError(f"{name} of at most {most}", count)


def postorder(nodes: Iterable[Node], children: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """Yield nodes and all their descendants, each after its children, except where these lead back to it.

    Iterative: chains of references may be as long as a text.
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
    """Size of a sequence of items, groups and repetitions, read from left to right."""

    def __init__(self, join: Callable[[int, int], int]) -> None:
        """``join`` gives the size of two items from theirs."""
        self._join = join
        self._groups = [(0, 0)]  # of each open group: size without its last item, and that item's size

    def item(self, size: int) -> None:
        before, last = self._groups[-1]
        self._groups[-1] = self._join(before, last), size

    def repeat(self, times: int) -> None:
        """Repeat the last item at least ``times`` times."""
        check_count("repetitions", times, MAX_REPEATS)
        before, last = self._groups[-1]
        self._groups[-1] = before, last * max(times, 1)

    def open(self) -> None:
        self._groups.append((0, 0))

    def close(self) -> None:
        """Close a group, which becomes an item; ignore an unmatched bracket."""
        if len(self._groups) > 1:
            self.item(self._join(*self._groups.pop()))

    def total(self) -> int:
        """Return the size of all items; open groups are closed."""
        while len(self._groups) > 1:
            self.close()
        return self._join(*self._groups[-1])


def _written_out(left: int, right: int) -> int:
    return left + right


def _check_written_out(size: int) -> None:
    if size > MAX_WRITTEN_OUT:
        raise TooLargeError(f"at most {MAX_WRITTEN_OUT} characters with its repetitions written out", size)


def _times(quantifier: str) -> int:
    """Return the least count of a quantifier."""
    least = _NUMBER.search(_LEAST_END.split(quantifier)[0])
    if least is None:
        return 0
    if len(least.group().lstrip("0")) > _MAX_DIGITS:
        raise TooLargeError(f"repetitions of at most {MAX_REPEATS}", f"a number of {len(least.group())} digits")
    return int(least.group())


def _most(quantifier: str) -> float:
    """Return the largest count of a quantifier in braces."""
    most = quantifier.strip("{}").split(",")[-1].strip()
    return float(most) if most else math.inf


def _json_at(text: str, at: int) -> tuple[object, int] | None:
    """Parse the JSON value that begins at ``at``; return it and its end, or None if it is not JSON."""
    try:
        value, length = json.JSONDecoder().raw_decode(text[at:])  # sliced: an error counts lines from the text's start
    except (ValueError, RecursionError):
        return None  # the library reports the error
    return value, at + length


def _rules(text: str) -> Iterator[_Rule]:
    """Yield rules and terminals, each with its tokens, without JSON."""
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
    """Remove and return the name before a colon, with attributes as in ``name[capture, max_tokens=5]:``."""
    at = len(tokens) - 1
    if at >= 0 and tokens[at].group() == "]":
        at = next((i for i in range(at, max(at - _MAX_ATTRIBUTE_TOKENS, 0), -1) if tokens[i].group() == "["), 0) - 1
    if at < 0 or tokens[at].lastgroup != "name":
        return None
    name = tokens[at]["name"]
    del tokens[at:]
    return name


def _size(rule: _Rule, sizes: Mapping[str, int]) -> int:
    """Return a terminal's written-out size; of a rule the largest product of nested repetitions."""
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
