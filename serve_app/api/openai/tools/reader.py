"""Incremental parser of tool calls in a model's text: the text around them, names, and arguments piece by piece.

A call's own JSON says where it ends: a closing tag within one of its strings is text. Text that only resembles a call
stays text. Pieces are the same however the text is split, but for where they are cut.
"""

import json
import re
from collections.abc import Collection
from typing import Any

from serve_app.api.openai.reasoning.marks import FoundMark, Part, end_of
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said
from serve_app.api.openai.tools.formats.scanning import JSON, begun

_MOST_HEAD_CHARS = 1024  # of a call up to its arguments; a call with a longer head is read once complete
_ARGUMENTS = ("arguments", "parameters")  # small models write either, whatever their form says
_HEAD = re.compile(
    rf'\s*\{{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:{"|".join(_ARGUMENTS)})"\s*:\s*(?=\{{)', re.DOTALL
)
_IN_STRING, _IN_VALUE = re.compile(r'["\\\n]'), re.compile(r'["{}\[\]<]')
_BRACKETS = {"{": 1, "[": 1, "}": -1, "]": -1}
_NO_DEPTH = -(10**9)


class _Call:
    """One call. It ends with a tag outside of its strings, or without tags (``closes`` empty) with its last bracket."""

    def __init__(self, closes: str, names: Collection[str]) -> None:
        self._closes, self._floor, self._names = closes, _NO_DEPTH if closes else 0, names
        self._pieces: list[str] = []  # its text, unless arguments have begun
        self._head: str | None = ""  # its first characters; None: its arguments have begun, or cannot be told any more
        self._held = ""  # what may be the beginning of the tag
        self._depth, self._quoted, self._escaped, self._broken, self._stopped = 0, False, False, False, False
        self.begun = self._read = False  # begun: its arguments leave as they come; read: all of them have
        self.rest: str | None = None  # the text behind it, once it has ended

    @property
    def whole(self) -> str:
        """Its text, without tags."""
        return "".join(self._pieces) + self._held

    def push(self, text: str) -> list[Piece]:
        """Return what this text completes; ``rest`` says whether the call has ended."""
        text, self._held = self._held + text, ""
        if self._broken and not self.begun:
            self._end_at_tag(text)
            return []
        pieces, at = self._look_for_head(text)
        if self.begun and not self._read:
            end = self._scan(text, at, 1)
            pieces += [CallArguments(text[at:end])] if end > at else []
            self._read, at = self._stopped and self._depth == 1, end
        if not self._stopped or self._read:
            self._stopped = False
            end = self._scan(text, at, self._floor)
        if not self.begun:
            self._pieces.append(text[:end])
        if self._stopped:
            self.rest = text[end + len(self._closes) :]
        elif self._broken and not self.begun:
            text, self._pieces, self._held = self.whole, [], ""
            self._end_at_tag(text)
        return pieces

    def _look_for_head(self, text: str) -> tuple[list[Piece], int]:
        """Return the call's beginning, and where in the text its arguments begin."""
        if self._head is None:
            return [], 0
        before = len(self._head)
        self._head += text[: _MOST_HEAD_CHARS - before]
        found = _HEAD.match(self._head)
        if found is None and len(self._head) < _MOST_HEAD_CHARS:
            return [], 0
        self._head = None
        name = None if found is None else _name(found[1])
        if found is None or name is None or (self._names and name not in self._names):
            return [], 0
        self.begun, self._depth, self._quoted, self._escaped = True, 1, False, False
        return [CallBegun(name)], found.end() - before

    def _scan(self, text: str, at: int, floor: int) -> int:
        """Return where brackets fall to ``floor`` or the tag begins (``_stopped``), or the end of what can be told."""
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_IN_STRING if self._quoted else _IN_VALUE).search(text, at)
            if found is None:
                return len(text)
            at = found.end()
            if change := _BRACKETS.get(found[0]):
                self._depth += change
                if change < 0 and self._depth == floor:
                    self._stopped = True
                    return at
            elif found[0] == "<":
                if self._closes.startswith(text[at - 1 : at - 1 + len(self._closes)]):
                    at -= 1
                    self._stopped = text.startswith(self._closes, at)
                    self._held = "" if self._stopped else text[at:]
                    return at
            else:
                self._quoted ^= found[0] == '"'
                self._escaped = found[0] == "\\"
                self._broken |= found[0] == "\n"  # no string of JSON goes over lines
        return at

    def _end_at_tag(self, text: str) -> None:
        """End what is no JSON at any tag, within quotes or not."""
        inside, tag, behind = text.partition(self._closes) if self._closes else (text, "", "")
        kept = 0 if tag else begun(self._closes, text)
        self._pieces.append(inside[: len(inside) - kept])
        self._held = inside[len(inside) - kept :]
        if tag:
            self.rest = behind

    def read_whole(self) -> list[Piece] | None:
        """Read the complete call; None if it is not a call."""
        return call_of(self.whole, self._names)


def call_of(text: str, names: Collection[str] = ()) -> list[Piece] | None:
    """Read a complete call, whatever the order of its parts; None if it is not a call.

    ``names``: of the tools, where nothing but one of them and arguments tells a call from other JSON.
    """
    try:
        parts = _parts(text)
        name = parts.get("name", "")
        arguments = next((parts[key] for key in _ARGUMENTS if key in parts), "null")
        if arguments.startswith('"'):  # an object written as a string
            arguments = json.loads(arguments) or "{}"
        parsed = JSON.decode(arguments)
    except (ValueError, RecursionError):
        return None
    named = _name(name)
    if names and not (named in names and any(key in parts for key in _ARGUMENTS)):
        return None
    if named is None or not (parsed is None or isinstance(parsed, dict)) or not _is_text(arguments):
        return None
    return [CallBegun(named), CallArguments("{}" if parsed is None else arguments)]


def _parts(text: str) -> dict[str, str]:
    """Values of an object as they are written, by key.

    Raises:
        ValueError: the text does not begin with an object.
        RecursionError: it is nested too deeply.
    """
    parts = dict[str, str]()
    mark, at = "{", 0
    while mark != "}":
        key, at = JSON.raw_decode(text, _after(text, at, mark))
        begins = _after(text, at, ":")
        _, at = JSON.raw_decode(text, begins)
        parts[str(key)] = text[begins:at]
        mark = "}" if text.startswith("}", _after(text, at)) else ","
    return parts


def _after(text: str, at: int, mark: str = "") -> int:
    """Skip blanks, a mark that has to come next, and blanks."""
    found = re.compile(rf"\s*{re.escape(mark)}\s*").match(text, at)
    if found is None:
        raise ValueError(f"needs {mark} at {at}")
    return found.end()


def _name(literal: str) -> str | None:
    """A tool's name as JSON writes it; None if it is none."""
    try:
        name: Any = JSON.decode(literal)
    except ValueError:
        return None
    return name if isinstance(name, str) and name and _is_text(name) else None


def _is_text(text: str) -> bool:
    """Whether it can be sent: half of a surrogate pair cannot."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


class ToolReader:
    """Parser of one choice."""

    def __init__(self, opens: str, closes: str, names: Collection[str] = ()) -> None:
        """``opens`` and ``closes`` are around each call; "": nothing is, and calls are of these ``names``, if any."""
        self._opens, self._closes = opens, closes
        self._tagged = bool(self._closes)
        self._names = () if self._tagged else names
        self._held, self._at = "", 0  # _at: in the response, behind what is held
        self._call: _Call | None = None
        self._shown = list[str]()  # all of the call's text, unless its arguments have begun
        self._plain = False  # an untagged answer that does not begin with a call, or goes on behind its calls
        self._after_call = False  # nothing but blanks has come since a call
        self._blanks = list[str]()  # before a call or behind one, until text follows

    def push(self, part: Part) -> list[Piece]:
        """Return the pieces that this text completes."""
        pieces, self._at = list[Piece](), end_of(part)
        if isinstance(part, FoundMark) and part.mark.text in (self._opens, self._closes):
            pieces = self._tag(part)
        else:
            self._held += part.shown
        while (more := self._step()) is not None:
            pieces += more
        return pieces

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        call, self._call = self._call, None
        if call is None:
            return self._said(self._held)
        return [] if call.begun else self._whole(call)

    def _step(self) -> list[Piece] | None:
        if self._call is None:
            return self._outside() if self._tagged else self._untagged()
        if not self._held:
            return None
        text, self._held = self._held, ""
        return self._inside(self._call, text, text)

    def _tag(self, found: FoundMark) -> list[Piece]:
        """A tag that is a special token: it is read as its text, and told as what it shows."""
        if self._call is not None:
            return self._inside(self._call, found.mark.text, found.shown)
        if found.mark.text == self._closes:
            self._held += found.shown
            return []
        return self._begin(self._held, found.shown)

    def _begin(self, before: str, opens: str, behind: str = "") -> list[Piece]:
        """Begin what may be a call between texts; blanks between two calls are left out."""
        said = self._said(before, opens + behind)
        self._blanks += [] if said else [before]
        self._call, self._shown, self._held = _Call(self._closes, self._names), [opens], behind
        return said

    def _inside(self, call: _Call, text: str, shown: str) -> list[Piece]:
        pieces = call.push(text)
        self._shown.append(shown)
        if call.begun:
            self._shown.clear()
            self._blanks.clear()
        if call.rest is None:
            return pieces
        self._held, self._call, self._after_call = call.rest, None, True
        return pieces if call.begun else pieces + self._whole(call)

    def _whole(self, call: _Call) -> list[Piece]:
        """A call whose arguments did not leave as they came, or the text that it is."""
        pieces = call.read_whole()
        if pieces is not None:
            self._blanks.clear()
            return pieces
        self._after_call = False
        self._plain = not self._tagged
        return self._said("".join(self._shown).removesuffix(self._held), self._held)

    def _outside(self) -> list[Piece] | None:
        """Text before a tag, without the blanks between two calls."""
        before, tag, behind = self._held.partition(self._opens)
        kept = 0 if tag else begun(self._opens, self._held)
        text = before[: len(before) - kept]
        if tag:
            return self._begin(text, tag, behind)
        self._held = before[len(text) :]
        if self._after_call and not text.strip():
            self._blanks.append(text)
            return None
        return self._said(text, self._held) if text else None

    def _untagged(self) -> list[Piece] | None:
        """Blanks before the next call, or text to the end."""
        begun = self._held.lstrip(" \n\t\r;")
        if begun.startswith("{") and not self._plain:
            self._blanks.append(self._held[: len(self._held) - len(begun)])
            self._call, self._shown, self._held = _Call("", self._names), [], begun
            return []
        if not (begun or self._plain):
            self._blanks.append(self._held)
            self._held = ""
            return None
        text, self._held, self._plain = self._held, "", True
        return self._said(text) if text else None

    def _said(self, text: str, behind: str = "") -> list[Piece]:
        """Text that ends before ``behind``, the end of what was read."""
        if self._after_call and not text.strip():
            return []
        text, self._blanks = "".join([*self._blanks, text]), []
        self._after_call = self._after_call and not text
        return [Said(text, at=self._at - len(behind) - len(text))] if text else []
