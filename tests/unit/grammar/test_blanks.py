"""White space in JSON forms is bounded by the grammar, over the tokens of the embedded target."""

import json
import random
import re
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from outrider.contracts.requests import Grammar
from outrider.grammar.blanks import INDENTATION, LINE_BREAK, JsonPlace
from outrider.grammar.compiling import Grammars
from outrider.grammar.repeats import longest
from outrider.grammar.state import GrammarState
from outrider.grammar.validating import GrammarKind, GrammarSource, validate
from outrider.models.embedded import TARGET_NAME
from outrider.models.grammars import grammars_of
from outrider.models.loading import load_target_facts
from tests.unit.grammar.test_validating import writes

_BLANKS = " \t\n\r"
END = 2


@cache
def grammars() -> Grammars:
    return grammars_of(load_target_facts(TARGET_NAME))


def form(schema: object, pattern: str | None = None, *, kind: GrammarKind = GrammarKind.JSON_SCHEMA) -> Grammar:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    verdict = validate(GrammarSource(kind, text, whitespace_pattern=pattern))
    assert verdict.is_valid, verdict
    return Grammar(verdict.text)


def allowed(state: GrammarState, path: tuple[int, ...] = ()) -> list[int]:
    words = state.masks(path, len(path), 1)[0].astype("<u4")
    return [int(i) for i in np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))]


@cache
def texts() -> list[str]:
    grammars().begin(form({"type": "object"}))  # waits until the tokens are read
    tokens = grammars()._tokens  # noqa: SLF001 (the library's own)
    assert tokens is not None
    return [tokens.decode_bytes([i]).decode(errors="replace") for i in range(tokens.vocab_size)]


@cache
def tokens_that_begin_blank() -> frozenset[int]:
    return frozenset(i for i, text in enumerate(texts()) if text[:1] in tuple(_BLANKS))


def is_in(mask: npt.NDArray[np.uint32], token: int) -> bool:
    return bool(mask[token // 32] >> np.uint32(token % 32) & np.uint32(1))


def outside_of_strings(text: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*("|$)', '""', text, flags=re.DOTALL)


FORMS = {
    "no properties": ({"type": "object", "additionalProperties": False, "properties": {}}, None),
    "any object": ({"type": "object"}, None),
    "arrays": ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}}, None),
    "one blank": ({"type": "object"}, "[ ]?"),
    "four blanks": ({"type": "object"}, r"[ \n]{0,4}"),
    "any number of blanks": ({"type": "object"}, r"\s*"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_writer_of_blanks_is_stopped_and_drafts_change_no_mask(name: str) -> None:
    """It writes white space wherever that is allowed, by any token; beside it, paths are tried and taken back."""
    schema, pattern = FORMS[name]
    most = None if pattern is None else longest(pattern)
    rng, grammar, blanks = random.Random(name), form(schema, pattern), sorted(tokens_that_begin_blank())
    state, output = grammars().begin(grammar), list[int]()
    for step in range(80):
        alone = grammars().begin(grammar, output)
        mask = alone.masks((), 0, 1)
        assert np.array_equal(state.masks((), 0, 1), mask)
        written = [token for token in blanks if is_in(mask[0], token)]
        token = rng.choice(written or [i for i in allowed(state) if i != END] or [END])
        path = (token, *rng.choices(blanks, k=3))
        lawful, masks = state.lawful(path), state.masks(path, 0, 4)
        assert lawful >= 1
        assert [is_in(row, following) for row, following in zip(masks, path[: lawful + 1], strict=False)] == (
            [True] * lawful + [False] * (lawful < 4)
        )
        assert state.feed(path[:1]) == 1
        output.append(token)
        if step % 8 == 7:
            del output[rng.randrange(len(output) // 2, len(output)) :]
            state.keep(len(output))
    place = JsonPlace()
    for token in output:
        text = texts()[token]
        run = len(text) - len(text.lstrip(_BLANKS))
        if run and not place.quoted:
            assert place.blanks + run <= (LINE_BREAK + INDENTATION * place.depth if most is None else most)
        place = place.after(text.encode())


def test_a_writer_of_one_blank_at_a_time_gets_to_the_end() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    for blank in (" ", "\n", "\t", "  ", "\n\n", "                "):
        state, written = grammars().begin(form(schema)), ""
        token = texts().index(blank)
        for _ in range(150):
            choices = allowed(state)
            if choices == [END]:
                break
            ended = outside_of_strings(written).count("}")
            plain = [i for i in choices if texts()[i] in ("{", '"', "a", ":", "}", "7")] or [END]
            following = token if token in choices and not ended else plain[0]
            if texts()[following] == "7" and written.endswith("7"):
                following = next(i for i in choices if texts()[i] == "}")
            assert state.feed([following]) == 1
            written += "" if following == END else texts()[following]
        assert json.loads(written) == {"a": 7}, repr(written)


@pytest.mark.parametrize("indent", [None, 1, 2, 4, 8, "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_pretty_printers_write_is_allowed(indent: int | str | None, newline: str) -> None:
    value: object = {"text": "  " * 40, "empty": {}, "list": [1, [2, {"a": None}], "x" + " " * 99 + '"\\ ']}
    for _ in range(12):
        value = {"in": value, "beside": [True, {"b": 'q"\\'}]}
    text = json.dumps(value, indent=indent).replace("\n", newline)
    tokens = grammars()
    state = tokens.begin(form({"type": "object"}))
    assert tokens._tokens is not None  # noqa: SLF001
    for ids in (tokens._tokens.tokenize_str(text), tokens._tokens.greedy_tokenize(text)):  # noqa: SLF001
        assert state.feed(ids) == len(ids)
        assert END in allowed(state)
        state.keep(0)


def test_white_space_in_strings_has_no_bound_and_what_is_forced_is_never_forbidden() -> None:
    tokens = grammars()
    text = json.dumps({"a": " " * 500})
    state = tokens.begin(form({"properties": {"a": {"const": " " * 500}}, "required": ["a"], "type": "object"}))
    ids = tokens._tokens.tokenize_str(text)  # type: ignore[union-attr]  # noqa: SLF001
    assert state.feed(ids) == len(ids)
    wide = {"x-guidance": {"item_separator": ", {40}"}, "type": "array", "items": {"const": 1}, "minItems": 2}
    state = tokens.begin(form(wide))
    for piece in ["[", "1", ",", *" " * 40, "1", "]"]:
        assert state.feed([texts().index(piece)]) == 1


def test_a_reasoning_prefix_is_not_counted() -> None:
    blank, opens = texts().index("\n"), texts().index("{")
    grammar = Grammar(form({"type": "object"}).text, begins_after=1)
    state = grammars().begin(grammar, [blank, opens, texts().index('"'), 1, opens])
    for _ in range(LINE_BREAK + INDENTATION):
        assert state.feed([blank]) == 1
    assert blank not in allowed(state)
    state.keep(3)
    assert state.feed([blank, 1]) == 2
    assert blank not in allowed(state), "JSON does not begin with white space"


def test_json_within_rules_is_compact_unless_it_says_otherwise() -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "array"}}'
    compact = form(f"start: %json {schema}}}", kind=GrammarKind.RULES).text
    assert writes(compact, '{"a": [1, 2]}')
    assert writes(compact, '{"a":[1,2]}')
    assert not writes(compact, '{"a":\n[1,2]}')
    assert not writes(compact, '{ "a":[1,2]}')
    own = f'start: %json {schema}, "x-guidance": {{"whitespace_flexible": true}}}}'
    assert writes(form(own, kind=GrammarKind.RULES).text, '{ "a": [1, 2] }')


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("", 0),
        ("[ ]?", 1),
        (r"[ \n]{0,4}", 4),
        (r"(?:\r?\n {0,8}|\t)?", 11),
        (r"(?P<a>\x20{2}){3}", 6),
        (r"[]\]a]{2}|\p{Zs}", 3),
        (r"( +){0}\n", 1),
        ("[ ]*", None),
        (r"\s+", None),
        ("( {2}){1,}", None),
        ("(?x) a # +", None),
    ],
)
def test_the_longest_text_of_an_expression_is_not_underestimated(pattern: str, most: int | None) -> None:
    assert longest(pattern) == most
