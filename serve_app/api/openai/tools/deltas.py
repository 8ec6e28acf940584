"""Tool calls in OpenAI's form: in a message, or piece by piece in a stream's deltas."""

from collections.abc import Sequence
from hashlib import blake2b

from outrider.contracts.requests import FinishReason
from serve_app.answers import ChatFinish, FunctionCallDelta, MessageDelta, ToolCall, ToolCallDelta
from serve_app.api.openai.tools.reader import CallArguments, CallBegun, Piece, Said, ToolReader


class CallDeltas:
    def __init__(self, form: str, name: str) -> None:
        """``form`` is the model's tool call form; ``name`` is the choice's, from which call ids are made."""
        self._reader, self._name = ToolReader(form), name
        self._begun = 0

    @property
    def called(self) -> bool:
        """Whether a tool was called."""
        return self._begun > 0

    def push(self, text: str) -> list[MessageDelta]:
        """Return the deltas for a piece of text."""
        return self._deltas(self._reader.push(text))

    def finish(self) -> list[MessageDelta]:
        """Return the deltas for held text."""
        return self._deltas(self._reader.finish())

    def _deltas(self, pieces: Sequence[Piece]) -> list[MessageDelta]:
        return [self._delta(piece) for piece in pieces]

    def _delta(self, piece: Piece) -> MessageDelta:
        match piece:
            case Said():
                return {"content": piece.text}
            case CallBegun():
                self._begun += 1
                return {"tool_calls": [self._opened({"name": piece.name, "arguments": ""})]}
            case CallArguments():
                return {"tool_calls": [{"index": self._begun - 1, "function": {"arguments": piece.text}}]}

    def _opened(self, function: FunctionCallDelta) -> ToolCallDelta:
        index = self._begun - 1
        return {"index": index, "id": call_id(self._name, index), "type": "function", "function": function}


def whole_calls(text: str, form: str, name: str) -> tuple[str, list[ToolCall]]:
    """Split a complete text into its content and its tool calls."""
    reader, said, calls = ToolReader(form), list[str](), list[tuple[str, list[str]]]()
    for piece in (*reader.push(text), *reader.finish()):
        match piece:
            case Said():
                said.append(piece.text)
            case CallBegun():
                calls.append((piece.name, []))
            case CallArguments():
                calls[-1][1].append(piece.text)
    written: list[ToolCall] = [
        {"id": call_id(name, i), "type": "function", "function": {"name": called, "arguments": "".join(parts)}}
        for i, (called, parts) in enumerate(calls)
    ]
    return "".join(said), written


def ended_by(reason: FinishReason, *, called: bool) -> ChatFinish:
    """Why a choice ended: calling tools takes precedence over ``stop``."""
    return "tool_calls" if called and reason is FinishReason.STOP else reason


def call_id(name: str, index: int) -> str:
    """Id of a choice's call: a function of both arguments, so that documents and streams agree."""
    return f"call_{blake2b(f'{name}-{index}'.encode(), digest_size=12).hexdigest()}"
