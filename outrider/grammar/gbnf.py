"""Translate GBNF, llama.cpp's notation of grammars, into Lark rules.

Each character is a terminal of its own. Longer terminals would be read greedily, as lexers do, and lose texts that the
grammar describes: after ``[a-z]+`` no ``"s"`` could follow.
"""

import json
import re

from outrider.grammar.places import GrammarSyntaxError, place

_TOKEN = re.compile(
    r"""
    (?P<skipped>\s+ | \#[^\n]*)
    | (?P<rule>[A-Za-z0-9_-]+)\s*::=
    | (?P<name>[A-Za-z0-9_-]+)
    | (?P<text>"(?:[^"\\\n]|\\.)*")
    | (?P<chars>\[\^?(?:[^\]\\\n]|\\.)*\])
    | (?P<repeat>[*+?] | \{\s*\d+\s*(?:,\s*\d*\s*)?\})
    | (?P<any>\.)
    | (?P<open>\()
    | (?P<close>\))
    | (?P<either>\|)
    """,
    re.VERBOSE,
)
_CHAR = re.compile(
    r"\\x(?P<x>[0-9A-Fa-f]{2})|\\u(?P<u>[0-9A-Fa-f]{4})|\\U(?P<U>[0-9A-Fa-f]{8})"
    r"|\\(?P<plain>[nrt]|[^\w\s])|(?P<char>[^\\])",
    re.DOTALL,
)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
_ANY = r"[\s\S]"


def lark_of_gbnf(text: str) -> str:
    """Return the same grammar in Lark's form; its first rule is ``root``.

    Raises:
        GrammarSyntaxError: it is not GBNF, or names a rule that it does not define.
    """
    return _Translation(text).lark()


class _Translation:
    def __init__(self, text: str) -> None:
        self._text = text
        self._rules: dict[str, list[str]] = {}  # what follows each rule's name, in Lark's symbols
        self._uses: dict[str, int] = {}  # of rules: where a name stands first
        self._terminals: dict[str, str] = {}  # of classes of characters, by regular expression
        self._rule: list[str] = []
        self._open: list[int] = []  # where brackets open
        self._repeatable = False  # whether a symbol or group stands before

    def lark(self) -> str:
        at = 0
        while at < len(self._text):
            token = _TOKEN.match(self._text, at)
            if token is None:
                raise self._error(at, 'rules such as root ::= "yes" | [a-z]+ with each quote and bracket closed')
            kind = str(token.lastgroup)
            if kind != "skipped":
                if not self._rules and kind != "rule":
                    raise self._error(at, 'a rule, such as root ::= "yes"')
                getattr(self, f"_take_{kind}")(token[kind], at)
            at = token.end()
        self._check_closed(at)
        for name, used_at in self._uses.items():
            if name not in self._rules:
                raise self._error(used_at, "a rule that is defined")
        if "root" not in self._rules:
            raise self._error(at, "a rule root ::= ...")
        rules = [f"{_lark_name(name)}: {' '.join(symbols)}" for name, symbols in self._rules.items()]
        return "\n".join([*rules, *(f"{name}: /{chars}/" for chars, name in self._terminals.items())]) + "\n"

    def _take_rule(self, name: str, at: int) -> None:
        self._check_closed(at)
        if name in self._rules:
            raise self._error(at, "a name that is not defined yet")
        self._rule = self._rules[name] = []
        self._repeatable = False

    def _take_name(self, name: str, at: int) -> None:
        self._uses.setdefault(name, at)
        self._add(_lark_name(name))

    def _take_text(self, quoted: str, at: int) -> None:
        chars = [json.dumps(char, ensure_ascii=False) for char in self._chars(quoted[1:-1], at + 1)]
        self._add(chars[0] if len(chars) == 1 else f"({' '.join(chars)})" if chars else '""')

    def _take_chars(self, bracketed: str, at: int) -> None:
        negated = bracketed.startswith("[^")
        begins = 2 if negated else 1
        inside = bracketed[begins:-1]
        spans, at = list[str](), at + begins
        chars = [(found, at + found.start()) for found in _CHAR.finditer(inside)]
        literal = self._chars(inside, at)
        i = 0
        while i < len(literal):
            last = i
            if i + 2 < len(literal) and chars[i + 1][0]["char"] == "-":
                last = i + 2
                if literal[last] < literal[i]:
                    raise self._error(chars[i][1], "a range that goes upwards")
            spans.append(_code(literal[i]) if last == i else f"{_code(literal[i])}-{_code(literal[last])}")
            i = last + 1
        if not spans:
            raise self._error(at, "characters in a class")
        expression = f"[{'^' if negated else ''}{''.join(spans)}]"
        self._add(self._terminals.setdefault(expression, f"CHARS_{len(self._terminals)}"))

    def _take_any(self, _: str, __: int) -> None:
        self._add(self._terminals.setdefault(_ANY, f"CHARS_{len(self._terminals)}"))

    def _take_repeat(self, repeat: str, at: int) -> None:
        if not self._repeatable:
            raise self._error(at, "something to repeat before it")
        least, _, most = repeat.strip("{}").partition(",")
        if most.strip() and int(most) < int(least):
            raise self._error(at, "a largest number of repetitions that is no smaller than the least")
        self._rule[-1] += "".join(repeat.split())
        self._repeatable = False

    def _take_open(self, bracket: str, at: int) -> None:
        self._open.append(at)
        self._rule.append(bracket)
        self._repeatable = False

    def _take_close(self, bracket: str, at: int) -> None:
        if not self._open:
            raise self._error(at, "an opening bracket before it")
        self._open.pop()
        self._add(bracket)

    def _take_either(self, mark: str, _: int) -> None:
        self._rule.append(mark)
        self._repeatable = False

    def _add(self, symbol: str) -> None:
        self._rule.append(symbol)
        self._repeatable = True

    def _chars(self, text: str, at: int) -> list[str]:
        """Characters that a text or a class consists of, escapes resolved."""
        chars, read = list[str](), 0
        while read < len(text):
            found = _CHAR.match(text, read)
            code = None if found is None else found["x"] or found["u"] or found["U"]
            if found is None or (code and not _is_char(int(code, 16))):
                raise self._error(at + read, r"an escape such as \n, \", \\, \x41 or \u00e9")
            chars.append(chr(int(code, 16)) if code else _PLAIN.get(found["plain"], found["plain"] or found["char"]))
            read = found.end()
        return chars

    def _check_closed(self, at: int) -> None:
        if self._open:
            raise self._error(at, f"a closing bracket for the one of {place(self._text, self._open[-1])}")

    def _error(self, at: int, needed: str) -> GrammarSyntaxError:
        return GrammarSyntaxError(self._text, at, needed)


def _lark_name(name: str) -> str:
    """Lark's rules are lower case, and have no hyphens."""
    return "start" if name == "root" else "rule_" + "".join(_NAME_CHARS.get(char, char) for char in name)


_NAME_CHARS = {"-": "_m", "_": "_u"} | {chr(code): f"_{chr(code + 32)}_" for code in range(ord("A"), ord("Z") + 1)}


def _code(char: str) -> str:
    return rf"\u{{{ord(char):x}}}"


def _is_char(code_point: int) -> bool:
    """Whether it is a Unicode scalar value, of which texts consist."""
    return code_point < 0xD800 or 0xDFFF < code_point <= 0x10FFFF
