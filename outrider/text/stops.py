"""Stop strings: where they cut a text, and which single tokens contain one."""

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache

_KEPT_AUTOMATONS = 64
_ROOT = 0
_NO_CHILD = 0xFFFFFFFF  # not the code of any character


def tokens_that_stop(token_texts: Sequence[str], stop: Sequence[str]) -> tuple[int, ...]:
    """Return tokens whose own text, of ``token_texts`` by id, contains a stop string: they always end a response."""
    if not stop:
        return ()
    return tuple(i for i, text in enumerate(token_texts) if any(string in text for string in stop))


class StopAutomaton:
    """Finds the first end of any of several strings, in amortised constant time per character.

    A state is a node of the strings' trie: the longest beginning of any string that the text so far ends with. Nodes
    are numbered string by string, so a node's first child has the next number, and only nodes with more children have a
    table: 16 strings of 1,024 characters take 256 KiB.

    Source: Aho and Corasick, "Efficient string matching", CACM 18(6), 1975.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        """Build it in about 1 us per character of ``strings``, none of which is empty."""
        self._first_child = array("I", [_NO_CHILD])  # by node: code of the first child's character
        self._others: dict[int, dict[int, int]] = {}  # by node: further children by character code
        self._depth = array("I", [0])
        self._ends = array("I", [0])  # by node: length of the longest string that ends there, 0 if none
        for string in strings:
            self._add(string)
        self._failure = array("I", bytes(self._depth.itemsize * len(self._depth)))
        self._link()
        self._beginnings = frozenset(string[0] for string in strings)

    def scan(self, state: int, text: str) -> tuple[int, int, int]:
        """Read ``text`` from ``state`` on, up to the first end of a string.

        Returns:
            The state there, the position in ``text`` after the string's end, and the string's length (the longest of
            those that end there); position ``-1`` and length ``0`` if none ends in it.
        """
        if state == _ROOT and self._beginnings.isdisjoint(text):
            return _ROOT, -1, 0
        first_child, others, failure, ends = self._first_child, self._others, self._failure, self._ends
        for at, char in enumerate(map(ord, text), start=1):
            while first_child[state] != char:
                if state in others and char in others[state]:
                    state = others[state][char]
                    break
                if state == _ROOT:
                    break
                state = failure[state]
            else:
                state += 1
            if ends[state]:
                return state, at, ends[state]
        return state, -1, 0

    def depth(self, state: int) -> int:
        """Return the number of characters at the text's end that a string may begin with."""
        return self._depth[state]

    def _add(self, string: str) -> None:
        node = _ROOT
        for depth, char in enumerate(map(ord, string), start=1):
            child = self._child(node, char)
            if child is None:
                child = len(self._depth)
                if self._first_child[node] == _NO_CHILD and child == node + 1:
                    self._first_child[node] = char
                else:
                    self._others.setdefault(node, {})[char] = child
                self._first_child.append(_NO_CHILD)
                self._depth.append(depth)
                self._ends.append(0)
            node = child
        self._ends[node] = len(string)

    def _child(self, node: int, char: int) -> int | None:
        if self._first_child[node] == char:
            return node + 1
        return self._others.get(node, {}).get(char)

    def _children(self, node: int) -> Iterator[tuple[int, int]]:
        if self._first_child[node] != _NO_CHILD:
            yield self._first_child[node], node + 1
        yield from self._others.get(node, {}).items()

    def _link(self) -> None:
        """Set each node's failure link, its longest proper suffix that is a node; shorter nodes first."""
        level = [child for _, child in self._children(_ROOT)]
        while level:
            deeper = list[int]()
            for node in level:
                for char, child in self._children(node):
                    suffix = self._failure[node]
                    while (found := self._child(suffix, char)) is None and suffix != _ROOT:
                        suffix = self._failure[suffix]
                    self._failure[child] = _ROOT if found is None else found
                    self._ends[child] = self._ends[child] or self._ends[self._failure[child]]
                    deeper.append(child)
            level = deeper


@lru_cache(_KEPT_AUTOMATONS)
def stop_automaton(strings: tuple[str, ...]) -> StopAutomaton:
    """Return the automaton of these strings, cached for the other choices of a request. Thread-safe."""
    return StopAutomaton(strings)


class StopMatcher:
    """Cuts text at the first stop string, however the text is split.

    The match that ends first is taken; of those that end together, the longest. No stop string is empty.
    """

    def __init__(self, stop: Sequence[str], *, keeps: bool = False) -> None:
        """``keeps``: the stop string itself is shown."""
        self._keeps = keeps
        self._automaton = stop_automaton(tuple(stop)) if stop else None
        self._state = _ROOT
        self._held = ""  # longest suffix so far that a stop string may begin with
        self.stopped = False

    def push(self, text: str) -> str:
        """Take the next text; return what may be shown; nothing after ``stopped``."""
        if self.stopped:
            return ""
        if self._automaton is None:
            return text
        held, before = self._held, len(self._held)
        self._state, end, length = self._automaton.scan(self._state, text)
        text = held + text
        if length:
            self.stopped, self._held = True, ""
            return text[: before + end - (0 if self._keeps else length)]
        shown = len(text) - self._automaton.depth(self._state)
        self._held = text[shown:]
        return text[:shown]

    def finish(self) -> str:
        """Return the text still held: no more follows, so it is no stop string."""
        held, self._held = self._held, ""
        return held
