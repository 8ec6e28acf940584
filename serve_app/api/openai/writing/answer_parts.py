"""A whole answer in the order in which it was made, for APIs that have an item or a block for each part of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from serve_app.answers import MessageDelta, TokenLogprob, ToolCallDelta
from serve_app.api.written import Written, encode

PartKind = Literal["content", "reasoning_content", "tool_calls"]


@dataclass(slots=True)
class AnswerPart:
    """One call, or text or reasoning up to where something else begins.

    Attributes:
        pieces: of the text, or of a call's arguments.
        logprobs: of a text's tokens, if they were asked for.
        call_id: "" of what is no call, as ``name``.
    """

    kind: PartKind
    pieces: list[str] = field(default_factory=list)
    logprobs: Written = field(default_factory=Written)
    call_id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class AnswerParts:
    """Joins the pieces of an answer."""

    def __init__(self) -> None:
        self.all: list[AnswerPart] = []

    def add(self, delta: MessageDelta, logprobs: Iterable[TokenLogprob] = ()) -> None:
        """Append a piece; only texts are scored."""
        scored = list(logprobs)
        if thought := delta.get("reasoning_content"):
            self._of("reasoning_content").pieces.append(thought)
        if (text := delta.get("content")) or scored:
            part = self._of("content")
            part.pieces.append(text or "")
            if scored:
                part.logprobs.add([encode(scored)[1:-1]])
        for call in delta.get("tool_calls", ()):
            self._call(call)

    def _of(self, kind: PartKind) -> AnswerPart:
        if not self.all or self.all[-1].kind != kind:
            self.all.append(AnswerPart(kind))
        return self.all[-1]

    def _call(self, call: ToolCallDelta) -> None:
        function = call["function"]
        if "id" in call:
            self.all.append(AnswerPart("tool_calls", call_id=call["id"], name=function.get("name", "")))
        self.all[-1].pieces.append(function["arguments"])
