"""How a model marks its reasoning: found in its chat template and tokenizer, and how a prompt leaves it.

A template may open the reasoning at a prompt's end, or close it at once where a request turns it off.
"""

from dataclasses import dataclass
from enum import Enum

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from outrider.text.tokens import backend_of
from serve_app.api.openai.reasoning.marks import Mark, mark_in

_MARKS = (  # a template that contains the second of a pair belongs to a model that may reason between them
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<think>", "</think>"),
)
_ANSWER = ("<response>", "</response>")  # Granite's, around the answer
_CHANNELS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")


class Opened(Enum):
    """How a prompt leaves the reasoning."""

    MAYBE = "the model opens it, or not"
    OPEN = "the prompt has opened it"
    CLOSED = "there is none"


@dataclass(frozen=True, slots=True)
class Thinking:
    """A model's marks. ``opens`` None: it begins with its reasoning; ``channels``: those of harmony, instead."""

    opens: Mark | None
    closes: Mark
    answer: tuple[str, str] | None = None  # text around the answer
    channels: tuple[Mark, ...] = ()
    always: bool = False  # it reasons unless a prompt says otherwise

    @property
    def marks(self) -> tuple[Mark, ...]:
        return self.channels or (*(() if self.opens is None else (self.opens,)), self.closes)

    @property
    def tag_ids(self) -> tuple[int, ...]:
        """Marks that are tokens."""
        return tuple(mark.token_id for mark in self.marks if mark.token_id is not None)

    @property
    def by_text(self) -> bool:
        """Whether a mark is no token."""
        return any(mark.token_id is None for mark in self.marks)

    def left_by(self, prompt: str) -> Opened:
        """How a rendered prompt leaves the reasoning, by the mark that it ends with."""
        tail = prompt.rstrip()
        if not self.channels and tail.endswith(self.closes.text):
            return Opened.CLOSED
        if self.channels or not (self.opens is None or tail.endswith(self.opens.text)):
            return Opened.MAYBE
        return Opened.OPEN


def thinking_of(tokenizer: PreTrainedTokenizerBase, end: str | None) -> Thinking | None:
    """Return how a model marks its reasoning; None: it has none.

    Args:
        tokenizer: with its chat template.
        end: closing mark that the configuration names; None: the template tells.
    """
    template, backend = str(tokenizer.chat_template or ""), backend_of(tokenizer)
    if end is not None:
        opens = mark_in(backend, end.replace("/", "", 1))
        known = opens if opens.token_id is not None else None
        return Thinking(known, mark_in(backend, end), always=True)
    if all(mark in template for mark in _CHANNELS[:3]):
        return _harmony(backend)
    for opens_text, closes_text in _MARKS:
        if closes_text in template:
            answer = _ANSWER if all(mark in template for mark in _ANSWER) else None
            return Thinking(mark_in(backend, opens_text), mark_in(backend, closes_text), answer)
    return None


def _harmony(backend: Tokenizer) -> Thinking:
    marks = tuple(mark_in(backend, text) for text in _CHANNELS)
    return Thinking(None, marks[3], channels=marks)
