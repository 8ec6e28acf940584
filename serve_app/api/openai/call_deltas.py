"""Calls of tools as OpenAI writes them: in a message, or piece by piece in a stream's deltas."""

from collections.abc import Sequence
from hashlib import blake2b

from outrider.contracts.requests import FinishReason
from serve_app.api.openai.tool_reader import CallArguments, CallBegun, Piece, Said, ToolReader

TOOL_CALLS = "tool_calls"  # why a choice ended that calls tools


class CallDeltas:
    def __init__(self, form: str, name: str) -> None:
        """``form`` of its model's calls; ``name`` is its own, from which its calls' ids are made."""
        self._reader, self._name = ToolReader(form), name
        self._begun = 0

    @property
    def called(self) -> bool:
        """Whether it has called a tool."""
        return self._begun > 0

    def push(self, text: str) -> list[dict[str, object]]:
        """Deltas that come of a text."""
        return self._deltas(self._reader.push(text))

    def finish(self) -> list[dict[str, object]]:
        """Those of what was held back."""
        return self._deltas(self._reader.finish())

    def _deltas(self, pieces: Sequence[Piece]) -> list[dict[str, object]]:
        return [self._delta(piece) for piece in pieces]

    def _delta(self, piece: Piece) -> dict[str, object]:
        match piece:
            case Said():
                return {"content": piece.text}
            case CallBegun():
                self._begun += 1
                head = {"id": call_id(self._name, self._begun - 1), "type": "function"}
                return self._call({**head, "function": {"name": piece.name, "arguments": ""}})
            case CallArguments():
                return self._call({"function": {"arguments": piece.text}})

    def _call(self, parts: dict[str, object]) -> dict[str, object]:
        return {"tool_calls": [{"index": self._begun - 1, **parts}]}


def whole_calls(text: str, form: str, name: str) -> dict[str, object]:
    """``content`` and ``tool_calls`` of a message with such a text; nothing if it calls nothing."""
    reader, said, calls = ToolReader(form), list[str](), list[tuple[str, list[str]]]()
    for piece in (*reader.push(text), *reader.finish()):
        match piece:
            case Said():
                said.append(piece.text)
            case CallBegun():
                calls.append((piece.name, []))
            case CallArguments():
                calls[-1][1].append(piece.text)
    if not calls:
        return {}
    written = [
        {"id": call_id(name, i), "type": "function", "function": {"name": called, "arguments": "".join(parts)}}
        for i, (called, parts) in enumerate(calls)
    ]
    return {"content": "".join(said) or None, "tool_calls": written}


def ended_by(reason: FinishReason, *, called: bool) -> str:
    """Why a choice ended: that it calls tools comes before that it was at its end."""
    return TOOL_CALLS if called and reason is FinishReason.STOP else reason


def call_id(name: str, index: int) -> str:
    """Of a choice's call: a function of both, so that a document and a stream tell the same."""
    return f"call_{blake2b(f'{name}-{index}'.encode(), digest_size=12).hexdigest()}"
