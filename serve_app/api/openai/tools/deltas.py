"""A choice's message in OpenAI's form, with its reasoning and tool calls: whole, or piece by piece in a stream."""

from collections.abc import Sequence
from hashlib import blake2b

from outrider.contracts.requests import FinishReason, TagPlace
from outrider.text.tokens import TokenTable
from serve_app.answers import AssistantMessage, ChatFinish, FunctionCallDelta, MessageDelta, ToolCall, ToolCallDelta
from serve_app.api.openai.reasoning.message import MessageForm
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said, Thought

# A delta, and of one of the answer the characters of the choice's text that it has: from the first to behind the last.
PlacedDelta = tuple[MessageDelta, tuple[int, int] | None]


class MessageDeltas:
    def __init__(self, form: MessageForm, table: TokenTable, name: str, *, in_parts: bool = False) -> None:
        """Read from the start.

        Args:
            form: how it is read.
            table: of the target's tokenizer.
            name: the choice's, from which call ids are made.
            in_parts: texts with something else between them are told apart; else each message begins a line.
        """
        self._reader, self._name = form.reader(table), name
        self._several = form.several
        self._shows_thoughts, self.reasons = form.shows_thoughts, form.thinking is not None
        self._begun = 0
        self._in_parts = in_parts
        self._kinds = set[type[Piece]]()  # of which another message would begin a line

    @property
    def called(self) -> bool:
        """Whether a tool was called."""
        return self._begun > 0

    @property
    def thinking(self) -> bool:
        """Whether reasoning has begun and not ended."""
        return self._reader.thoughts.open

    @property
    def thought(self) -> bool:
        """Whether there was reasoning, shown or not."""
        return self._reader.thoughts.open or self._reader.thoughts.tokens(0) > 0

    def reasoning_tokens(self, total: int) -> int:
        """How many of the choice's ``total`` tokens are reasoning."""
        return self._reader.thoughts.tokens(total)

    def made(self, token_ids: Sequence[int]) -> None:
        """Note tokens, before the text that they make visible is read."""
        self._reader.thoughts.made(token_ids)

    def push(self, text: str, places: Sequence[TagPlace] = ()) -> list[PlacedDelta]:
        """Return the deltas for a piece of text, and the places of marks that are complete by now."""
        return self._deltas(self._reader.push(text, places))

    def finish(self) -> list[PlacedDelta]:
        """Return the deltas for held text."""
        return self._deltas(self._reader.finish())

    def _deltas(self, pieces: Sequence[Piece]) -> list[PlacedDelta]:
        deltas = ((self._delta(piece), piece) for piece in pieces)
        return [(delta, _place(piece)) for delta, piece in deltas if delta is not None]

    def _delta(self, piece: Piece) -> MessageDelta | None:
        match piece:
            case Thought():
                return {"reasoning_content": self._line(piece)} if self._shows_thoughts else None
            case Said():
                return {"content": self._line(piece)}
            case CallBegun():
                self._begun += 1
                self._kinds = set() if self._in_parts else self._kinds
                if self._begun > 1 and not self._several:
                    return None
                return {"tool_calls": [self._opened({"name": piece.name, "arguments": ""})]}
            case CallArguments() if self._begun > 1 and not self._several:
                return None
            case CallArguments():
                return {"tool_calls": [{"index": self._begun - 1, "function": {"arguments": piece.text}}]}

    def _line(self, piece: Thought | Said) -> str:
        """A piece's text, in a line of its own if another message's is before it."""
        follows = piece.begins and type(piece) in self._kinds
        self._kinds = {type(piece)} if self._in_parts else self._kinds | {type(piece)}
        return f"\n{piece.text}" if follows else piece.text

    def _opened(self, function: FunctionCallDelta) -> ToolCallDelta:
        index = self._begun - 1
        return {"index": index, "id": call_id(self._name, index), "type": "function", "function": function}


def _place(piece: Piece) -> tuple[int, int] | None:
    return (piece.at, piece.at + len(piece.text)) if isinstance(piece, Said) else None


class WholeMessage:
    """Joins the deltas of a message."""

    def __init__(self) -> None:
        self._said, self._thought = list[str](), list[str]()
        self._calls = list[tuple[ToolCallDelta, list[str]]]()

    def add(self, deltas: Sequence[MessageDelta]) -> None:
        """Append what comes next."""
        for delta in deltas:
            self._said += [delta["content"]] if "content" in delta else []
            self._thought += [delta["reasoning_content"]] if "reasoning_content" in delta else []
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    self._calls.append((call, []))
                self._calls[-1][1].append(call["function"]["arguments"])

    def written(self, *, thought: bool) -> AssistantMessage:
        """The message. Its content is null if there is none beside calls or reasoning (``thought``)."""
        said = "".join(self._said)
        message: AssistantMessage = {"role": "assistant", "content": said, "refusal": None}
        if not said and (self._calls or thought):
            message["content"] = None
        if self._thought:
            message["reasoning_content"] = "".join(self._thought)
        if self._calls:
            message["tool_calls"] = [_whole(call, "".join(parts)) for call, parts in self._calls]
        return message


def _whole(begun: ToolCallDelta, arguments: str) -> ToolCall:
    function = begun["function"]
    return {"id": begun["id"], "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def ended_by(reason: FinishReason, *, called: bool) -> ChatFinish:
    """Why a choice ended: calling tools takes precedence over ``stop``."""
    return "tool_calls" if called and reason is FinishReason.STOP else reason


def call_id(name: str, index: int) -> str:
    """Id of a choice's call: a function of both arguments, so that documents and streams agree."""
    return f"call_{blake2b(f'{name}-{index}'.encode(), digest_size=12).hexdigest()}"
