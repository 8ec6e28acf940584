"""Scores of an answer's tokens: each token that has text of the answer comes once and in order, however much repeats.

Texts are made of beginnings of marks, so that readers hold back what the answer says more than once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, groupby

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outrider.contracts.requests import TagPlace
from serve_app.api.openai.reasoning.families import Opened, Thinking
from serve_app.api.openai.reasoning.marks import Mark
from serve_app.api.openai.reasoning.message import MessageForm
from serve_app.api.openai.tools.deltas import MessageDeltas
from serve_app.api.openai.tools.formats.base import Tool
from serve_app.api.openai.tools.formats.registry import FORMS
from serve_app.api.openai.writing.choice_reader import ChoiceDelta, ShownToken
from serve_app.api.openai.writing.message_pieces import MessagePieces, ScoredPiece
from tests.unit.serve_app.api.test_tools import TABLE

TOOLS = tuple(Tool(name, {"type": "object"}, {}) for name in ("f", "g"))
CHANNELS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
# By form: beginnings of its marks; what is read like a call and is none.
REPEATED = {
    "hermes": (["<", "<tool", "<tool_call", "call>", "</tool_call>"], "<tool_call>{<x</tool_call>"),
    "qwen3_xml": (["<", "<tool_", "<function=", "</function>"], "<tool_call>\n<x"),
    "mistral": (["[", "[TOOL", "[TOOL_CALLS", "]", "[ARGS]"], "[TOOL_CALLS]<x {"),
    "mistral_list": (["[", "[TOOL", "[TOOL_CALLS", "]", "{"], "[TOOL_CALLS][1, [2]]"),
    "llama3_json": (["{", "}", '{"name', ";"], '{"a": 1}'),
    "pythonic": (["[", "[f", "[f(", "]", ")"], "[f(1)]"),
    "harmony": (["<", "<|", "<|channel", "|>", "<|end"], "<|constrain|>"),
}
AT_THE_BEGINNING = ("llama3_json", "pythonic")  # forms that have calls nowhere else
MARKS = {"hermes": FORMS["hermes"].marks, "qwen3_xml": FORMS["qwen3_xml"].marks, "mistral": FORMS["mistral"].marks}
MARKS |= {"mistral_list": MARKS["mistral"], "harmony": CHANNELS}
Segment = tuple[bool, str]  # whether it is of the answer, and its text


@dataclass(frozen=True)
class Written:
    """What a model wrote.

    Attributes:
        text: without marks that are special tokens.
        told: of each character, whether it is of the answer.
        tokens: where each begins and ends.
        marks: special tokens among them, by their index.
    """

    text: str
    told: list[bool]
    tokens: list[tuple[int, int]]
    marks: dict[int, Mark]

    @property
    def scored(self) -> list[int]:
        """Tokens that have some text of the answer; a part of a character has that character."""
        spans = ((i, begin, max(end, begin + 1)) for i, (begin, end) in enumerate(self.tokens) if i not in self.marks)
        return [i for i, begin, end in spans if any(self.told[begin:end])]

    @property
    def answer(self) -> str:
        return "".join(char for char, told in zip(self.text, self.told, strict=True) if told)


def written(segments: Sequence[Segment], sizes: Sequence[int], special: Sequence[Mark]) -> Written:
    """Cut into tokens of these sizes, of which 0 has a part of a character only; ``special``: tokens without text."""
    text, told, tokens, marks, lengths = "", list[bool](), list[tuple[int, int]](), dict[int, Mark](), cycle(sizes)
    for said, part in segments:
        at = 0
        while at < len(part):
            mark = next((mark for mark in special if part.startswith(mark.text, at)), None)
            if mark is not None:
                marks[len(tokens)] = mark
                tokens.append((len(text), len(text)))
                at += len(mark.text)
                continue
            ends = [found for mark in special if (found := part.find(mark.text, at)) >= 0]
            size = min(next(lengths), min(ends, default=len(part)) - at)
            tokens.append((len(text), len(text) + size))
            text += part[at : at + size]
            told += [said] * size
            at += size
    return Written(text, told, tokens, marks)


def chunks(made: Written, sizes: Sequence[int], *, late: bool) -> list[ChoiceDelta]:
    """What comes at once: so many tokens or, where their ends may come ``late``, so many characters."""
    found, shown, given = list[ChoiceDelta](), 0, 0
    for size in cycle(sizes):
        if given == len(made.tokens):
            return found
        last = min(given + max(size, 1), len(made.tokens))
        end = min(shown + size, len(made.text)) if late else made.tokens[last - 1][1]
        if late:
            last = next((i for i in range(given, len(made.tokens)) if made.tokens[i][1] > end), len(made.tokens))
        own = range(given, last)
        tags = [(i, made.marks[i]) for i in own if i in made.marks]
        found.append(
            ChoiceDelta(
                made.text[shown:end],
                tokens=tuple(ShownToken(_id(made, i), *made.tokens[i], None) for i in own),
                tags=tuple(TagPlace(mark.token_id or 0, i, made.tokens[i][0], made.tokens[i][1]) for i, mark in tags),
            )
        )
        shown, given = end, last
    raise AssertionError


def _id(made: Written, index: int) -> int:
    return made.marks[index].token_id or 0 if index in made.marks else index


def pieces_of(form: MessageForm, deltas: Sequence[ChoiceDelta]) -> list[ScoredPiece]:
    pieces = MessagePieces(MessageDeltas(form, TABLE, "c", in_parts=True), of_texts=True)
    return [piece for delta in deltas for piece in pieces.push(delta)] + pieces.finish()


def texts_in(pieces: Sequence[ScoredPiece]) -> list[tuple[str, list[int]]]:
    """Texts between calls, with the tokens they are scored with."""
    runs = groupby(((piece, tokens) for piece, tokens in pieces), lambda scored: "content" in scored[0])
    found = [list(run) for is_text, run in runs if is_text]
    return [
        ("".join(piece["content"] for piece, _ in run), [token.token_id for _, tokens in run for token in tokens])
        for run in found
    ]


@st.composite
def said_texts(draw: st.DrawFn, form: str, special: bool) -> str:
    parts = [*REPEATED[form][0], "a", "é🦊", " ", "\n", " \n"]
    text = "".join(draw(st.lists(st.sampled_from(parts), min_size=1, max_size=6)))
    assume(not any(mark in text for mark in MARKS.get(form, ()) if special or mark != "</tool_call>"))
    return text


@st.composite
def dialogues(draw: st.DrawFn, form: str, *, special: bool) -> list[Segment]:
    """Texts, and calls where the form has them."""
    if form == "harmony":
        return channels(draw, special)
    kinds = draw(st.lists(st.sampled_from(["said", "call", "broken"]), min_size=1, max_size=6))
    kinds = [kind for kind, _ in groupby(kinds)] if form != "hermes" else kinds
    if form in AT_THE_BEGINNING:
        kinds = ["call"] * draw(st.integers(0, 1)) + draw(st.sampled_from([["said"], ["broken", "said"]]))
    segments = list[Segment]()
    for i, kind in enumerate(kinds):
        if kind == "call":
            segments.append((False, FORMS[form].written(draw(st.sampled_from(["f", "g"])), {"a": "<[{"})))
            continue
        text = draw(said_texts(form, special)) if kind == "said" else REPEATED[form][1]
        before, behind = kinds[i - 1 : i], kinds[i + 1 : i + 2]
        if i and form in AT_THE_BEGINNING:
            assume(not text.lstrip(" \n;").startswith("{") or kind == "broken")
        blank = not text.strip(" \n;" if form == "llama3_json" else None)
        segments.append((not (blank and before == ["call"] and behind in ([], ["call"])), text))
    return segments


def channels(draw: st.DrawFn, special: bool) -> list[Segment]:
    segments = list[Segment]()
    kinds = draw(st.lists(st.sampled_from(["final", "analysis", "call"]), min_size=1, max_size=5))
    for i, kind in enumerate(kinds):
        start = "<|start|>assistant" if i else ""
        if kind == "call":
            call = FORMS["harmony"].written("f", {"a": "<[{"})
            segments.append((False, start + call))
            continue
        text = draw(said_texts("harmony", special))
        segments += [
            (False, f"{start}<|channel|>{kind}<|message|>"),
            (kind == "final", text),
            (False, "<|end|>" if i < len(kinds) - 1 else ""),
        ]
    return segments


def form_of(form: str, *, special: bool, thinks: bool) -> tuple[MessageForm, list[Mark]]:
    own = [Mark(text, 10_000 + i if special else None, special) for i, text in enumerate(MARKS.get(form, ()))]
    marks = tuple(own) if special else ()
    if form == "harmony":
        return MessageForm(Thinking(None, own[3], channels=tuple(own)), Opened.MAYBE, form, offered=TOOLS), list(marks)
    around = [Mark(text, 20_000 + i if special else None, special) for i, text in enumerate(("<think>", "</think>"))]
    thinking = Thinking(around[0], around[1]) if thinks else None
    left = Opened.MAYBE if thinks else Opened.CLOSED
    return MessageForm(thinking, left, form, offered=TOOLS, tool_marks=marks), [*marks, *(around if special else [])]


SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any)


@pytest.mark.parametrize("special", [False, True], ids=["spelled", "special"])
@pytest.mark.parametrize("form", REPEATED)
@given(data=st.data(), thinks=st.booleans(), cuts=SIZES, sizes=st.lists(SIZES, min_size=2, max_size=2), late=SIZES)
def test_each_token_of_the_answer_is_scored_once_with_its_text(
    form: str,
    data: st.DataObject,
    cuts: list[int],
    sizes: list[list[int]],
    late: list[int],
    *,
    special: bool,
    thinks: bool,
) -> None:
    message, marks = form_of(form, special=special, thinks=thinks)
    segments = data.draw(dialogues(form, special=special))
    if message.thinking is not None and form != "harmony":
        said, first = segments[0]
        assume(not (special and said and first.startswith("<tool_call>\n")))  # a line feed next to hidden marks
        trimmed = len(first) - len(first.lstrip("\n"))
        segments = [
            (False, f"<think>{data.draw(said_texts(form, special)).strip()}</think>{first[:trimmed]}"),
            (said, first[trimmed:]),
            *segments[1:],
        ]
    made = written(segments, cuts, marks)
    found = [texts_in(pieces_of(message, chunks(made, each, late=False))) for each in sizes]
    for texts in found:
        assert "".join(text.replace("\n", "") for text, _ in texts) == made.answer.replace("\n", "")
        assert [token for _, tokens in texts for token in tokens] == made.scored
    assert found[0] == found[1], "however many came at once"
    held = texts_in(pieces_of(message, chunks(made, late, late=True)))
    assert [token for _, tokens in held for token in tokens] == made.scored
