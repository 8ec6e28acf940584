"""Incremental parser of tool calls in a model's text: the text around them, names, and arguments piece by piece.

Text that only resembles a call stays text.
"""

import json
import re
from dataclasses import dataclass

from serve_app.api.openai.tools.request import FORMS


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """Start of the next call; its arguments follow."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the current call's arguments, in JSON."""

    text: str


Piece = Said | CallBegun | CallArguments
_MOST_HEAD_CHARS = 1024  # of a call up to its arguments; a call with a longer head is read once complete
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class _Call:
    """One call in JSON. Text that has been read is removed from the front of ``text``."""

    def __init__(self, argument_name: str) -> None:
        self.text = ""
        self._pieces: list[str] = []
        self.begun = self.over = False  # begun: its arguments; over: all of it
        self._name = argument_name
        self._head = re.compile(
            rf'\s*\{{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"{argument_name}"\s*:\s*(?=\{{)', re.DOTALL
        )
        self._depth, self._quoted, self._escaped, self._done = 0, False, False, False

    @property
    def whole(self) -> str:
        return "".join(self._pieces)

    def push(self, text: str) -> list[Piece]:
        self._pieces.append(text)
        if not self.begun and len(self.text) > _MOST_HEAD_CHARS:
            return []
        self.text += text
        pieces: list[Piece] = []
        if not self.begun and (head := self._head.match(self.text, 0, _MOST_HEAD_CHARS)):
            self.begun = True
            pieces.append(CallBegun(json.loads(f'"{head[1]}"')))
            self.text = self.text[head.end() :]
        if self.begun and not self._done:
            taken = self._arguments()
            if taken:
                pieces.append(CallArguments(self.text[:taken]))
                self.text = self.text[taken:]
        if self._done and not self.over:
            self.text = self.text.lstrip()
            self.over = self.text.startswith("}")
            self.text = self.text[1:] if self.over else self.text[:1]  # a call that continues otherwise never ends
        return pieces

    def _arguments(self) -> int:
        for at, char in enumerate(self.text):
            if self._quoted:
                self._quoted = self._escaped or char != '"'
                self._escaped = not self._escaped and char == "\\"
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if not self._depth:
                    self._done = True
                    return at + 1
        return len(self.text)

    def read_whole(self) -> list[Piece] | None:
        """Read a complete call whose parts are in another order; None if it is not a call."""
        try:
            call = json.loads(self.whole)
        except (ValueError, RecursionError):
            return None
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return None
        arguments = call.get(self._name, call.get("arguments", {}))
        return [CallBegun(call["name"]), CallArguments(json.dumps(arguments, ensure_ascii=False))]


class ToolReader:
    """Parser of one choice in one form."""

    def __init__(self, form: str) -> None:
        """``form``: its name in ``FORMS``."""
        self._form, self._tagged = FORMS[form], form == "hermes"
        self._held = ""
        self._call: _Call | None = None
        self._plain = False  # an untagged answer that does not begin with a call
        self.calls = 0

    def push(self, text: str) -> list[Piece]:
        """Return the pieces that this text completes."""
        self._held += text
        pieces: list[Piece] = []
        while (more := self._tagged_step() if self._tagged else self._bare_step()) is not None:
            pieces += self._counted(more)
        return pieces

    def finish(self) -> list[Piece]:
        """Return the held pieces."""
        held, call, self._held, self._call = self._held, self._call, "", None
        if call is None:
            return [Said(held)] if held else []
        whole = None if call.begun else call.read_whole()
        if whole is not None:
            return self._counted(whole)
        left = "" if call.begun else (_OPEN if self._tagged else "") + call.whole
        return [Said(left + held)] if left + held else []

    def _tagged_step(self) -> list[Piece] | None:
        if not self._held:
            return None
        if self._call is None:
            before, tag, behind = self._held.partition(_OPEN)
            if tag:
                self._call, self._held = _Call(self._form.arguments), behind
                return self._said(before)
            kept = _begun(_OPEN, self._held)
            text, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
            if not text.strip() and self.calls:  # blanks between two calls
                return None
            return [Said(text)] if text else None
        inside, tag, behind = self._held.partition(_CLOSE)
        kept = 0 if tag else _begun(_CLOSE, self._held)
        text, self._held = inside[: len(inside) - kept], behind if tag else inside[len(inside) - kept :]
        pieces = self._call.push(text) if text else []
        if not tag:
            return pieces or None
        call, self._call = self._call, None
        if not call.begun:
            pieces += call.read_whole() or [Said(_OPEN + call.whole + _CLOSE)]
        return pieces

    def _bare_step(self) -> list[Piece] | None:
        if self._plain or not self._held:
            text, self._held = self._held, ""
            return [Said(text)] if text else None
        if self._call is None:
            begun = self._held.lstrip(" \n;")
            if not begun:
                return None
            if begun[0] != "{":
                self._plain = not self.calls
                return None if self.calls else []
            self._call, self._held = _Call(self._form.arguments), begun
        text, self._held = self._held, ""
        pieces = self._call.push(text)
        if self._call.over:
            self._held, self._call = self._call.text, None
            return pieces
        return pieces or None

    def _counted(self, pieces: list[Piece]) -> list[Piece]:
        self.calls += sum(isinstance(piece, CallBegun) for piece in pieces)
        return pieces

    def _said(self, text: str) -> list[Piece]:
        return [Said(text)] if text.strip() or (text and not self.calls) else []


def _begun(tag: str, text: str) -> int:
    """Length of the longest prefix of a tag that the text ends with."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)
