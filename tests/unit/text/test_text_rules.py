"""What a response's text ends with, and special tokens in it: as vLLM has both."""

from dataclasses import replace

import pytest

from outrider.contracts.requests import GenerationRequest, SamplingParams
from outrider.models.tokenizer import load_tokenizer
from outrider.text.shown import text_of

TOKENIZER = load_tokenizer("smollm2-135m-instruct")
END = 2  # <|im_end|>
IDS: list[int] = TOKENIZER.encode("one two three")
LAST = IDS[-1]


def text(ids: list[int], **fields: object) -> tuple[str, int]:
    request = replace(GenerationRequest("g", (1,), SamplingParams(), max_tokens=9), **fields)  # type: ignore[arg-type]
    shown = text_of(request, TOKENIZER, frozenset({END, *request.stop_ids}))
    return "".join(map(shown.push, ids)) + shown.finish(), shown.shown_tokens


@pytest.mark.parametrize(
    ("ids", "fields", "expected"),
    [
        ([*IDS, END], {}, "one two three"),
        ([*IDS, END], {"special_text": True}, "one two three"),
        ([*IDS, END], {"special_text": True, "keeps_stop": True}, "one two three<|im_end|>"),
        ([*IDS, END], {"keeps_stop": True}, "one two three"),
        ([1, *IDS], {"special_text": True}, "<|im_start|>one two three"),
        ([1, *IDS], {}, "one two three"),
        (IDS, {"stop_ids": (LAST,)}, "one two"),
        (IDS, {"stop_ids": (LAST,), "keeps_stop": True}, "one two three"),
        (IDS, {"stop": (" th",)}, "one two"),
        (IDS, {"stop": (" th",), "keeps_stop": True}, "one two th"),
        ([*IDS, 1], {"stop": ("<|im_",), "special_text": True}, "one two three"),
        ([*IDS, 1], {"stop": ("<|im_",), "special_text": True, "keeps_stop": True}, "one two three<|im_"),
        ([*IDS, 1], {"stop": ("<|im_",)}, "one two three"),
    ],
)
def test_how_a_text_ends(ids: list[int], fields: dict[str, object], expected: str) -> None:
    assert text(ids, **fields)[0] == expected


def test_a_silent_token_counts_as_shown_and_frees_half_a_character() -> None:
    fox: list[int] = TOKENIZER.encode("🦊")
    assert text([*IDS, END])[1] == len(IDS) + 1
    assert text([*IDS, LAST], stop_ids=(LAST,)) == ("one two", len(IDS) + 1) or LAST in IDS
    assert text([*fox[:-1], LAST], stop_ids=(LAST,)) == ("\ufffd", len(fox))
