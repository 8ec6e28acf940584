"""Forms of tool calls: what a template writes is read as it was, however it is split, and held to by grammars."""

import json
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.config.schema import StructuredConfig
from outrider.text.shown import IncrementalText
from outrider.text.tokens import TokenTable, backend_of
from serve_app.api.openai.reasoning.families import Opened
from serve_app.api.openai.reasoning.message import MessageForm
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said
from serve_app.api.openai.tools.formats.base import Tool
from serve_app.api.openai.tools.formats.registry import FORMS, form_in
from tests.unit.serve_app.api.asking import CHAT, events_of, post
from tests.unit.serve_app.api.reasoning.model_families import limits_for, service_of, tokenizer_of, tool_marks_of

FAMILIES = {
    "qwen3": "hermes",
    "qwen3_coder": "qwen3_xml",
    "magistral": "mistral",
    "mistral_v7": "mistral_list",
    "llama4": "pythonic",
    "gpt_oss": "harmony",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "size": {"type": "number"},
        "deep": {"type": "object"},
        "items": {"type": "array"},
        "really": {"type": "boolean"},
        "maybe": {"type": ["integer", "null"]},
    },
    "required": ["text"],
    "additionalProperties": False,
}
WRITE = {"type": "function", "function": {"name": "write", "parameters": SCHEMA}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = (Tool("write", SCHEMA, WRITE), Tool("clock", {"type": "object"}, CLOCK))
ARGUMENTS: dict[str, dict[str, Any]] = {
    "empty": {},
    "a text": {"text": "Rome"},
    "types": {"text": "5", "count": -3, "size": 1.5, "really": True, "maybe": None, "items": [1, [None, False]]},
    "nested": {"text": "", "deep": {"a": {"b": ['"', "\\", "}"]}, "c": "[("}},
    "quotes": {"text": "'it's \"x\"' \\ \\n }{][)("},
    "lines": {"text": "a\n\n  b\tc\n"},
    "unicode": {"text": "漢字 🦊 é"},
    "closing tags": {"text": "</parameter> </function> <parameter=x> <function=y>"},
    "like a number": {"text": "true", "count": 10**20},
}


def written(family: str, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """What the template writes of an answer with calls, as the model would."""
    tokenizer = tokenizer_of(family)
    parts = [calls] if family != "gpt_oss" else [[call] for call in calls]  # it has one call to a message
    texts = list[str]()
    for part in parts:
        tool_calls = [{"id": f"abcdef{i:03}", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(part)]
        asked: list[dict[str, Any]] = [{"role": "user", "content": "?"}]
        answered = [*asked, {"role": "assistant", "content": "", "tool_calls": tool_calls}]
        before = str(tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False))
        whole = str(tokenizer.apply_chat_template(answered, tokenize=False))
        texts.append(whole.removeprefix(before))
    text = "<|start|>assistant".join(texts)
    for end in ("<|im_end|>\n", "</s>", "<|eot|>"):
        text = text.removesuffix(end)
    return text.removeprefix("\n")


def read(family: str, ids: list[int], sizes: list[int], tools: tuple[Tool, ...] = TOOLS) -> list[Piece]:
    limits = limits_for(family, FAMILIES[family])
    tags = () if limits.thinking is None else limits.thinking.tag_ids
    marks = tool_marks_of(family, FAMILIES[family])
    tags = (*tags, *(mark.token_id for mark in marks if mark.special and mark.token_id is not None))
    form = MessageForm(limits.thinking, Opened.MAYBE, FAMILIES[family], offered=tools, tool_marks=marks)
    tokenizer = tokenizer_of(family)
    reader, text = form.reader(TokenTable(backend_of(tokenizer))), IncrementalText(tokenizer)
    text.tag_ids = tags
    at, pieces = 0, list[Piece]()
    for size in cycle(sizes):
        shown = "".join(text.push(token_id) for token_id in ids[at : at + size])
        at += size
        pieces += reader.push(shown + (text.finish() if at >= len(ids) else ""), text.take_tags())
        if at >= len(ids):
            return pieces + reader.finish()
    raise AssertionError


def calls_in(pieces: list[Piece]) -> list[tuple[str, str]]:
    calls = list[tuple[str, str]]()
    for piece in pieces:
        if isinstance(piece, CallBegun):
            calls.append((piece.name, ""))
        elif isinstance(piece, CallArguments):
            calls[-1] = (calls[-1][0], calls[-1][1] + piece.text)
    return calls


def said_in(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Said))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_template_tells_the_form(family: str) -> None:
    assert form_in("auto", str(tokenizer_of(family).chat_template)) == FAMILIES[family]


def test_the_setting_knows_each_form() -> None:
    for name in FORMS:
        assert StructuredConfig(tool_format=name).tool_format == name  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS.keys())
@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_template_writes_is_read_as_it_was(family: str, arguments: dict[str, Any]) -> None:
    calls = [("write", arguments), ("clock", {})]
    ids = tokenizer_of(family).encode(written(family, calls))
    for sizes in ([1], [2, 3], [10_000]):
        pieces = read(family, ids, sizes)
        assert [(name, json.loads(values)) for name, values in calls_in(pieces)] == calls
        assert said_in(pieces) == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_form_reads_what_it_writes_itself(family: str) -> None:
    """For templates that know no tools; unknown functions are read as others are."""
    form = FORMS[FAMILIES[family]]
    text = form.written("other", {"a": [1, {"b": None}], "c": "x\ny"})
    ((name, values),) = calls_in(read(family, tokenizer_of(family).encode(text), [3]))
    assert (name, json.loads(values)) == ("other", {"a": [1, {"b": None}], "c": "x\ny"})


@pytest.mark.parametrize("family", FAMILIES)
def test_many_calls_are_read(family: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("write", {"text": str(i)}) for i in range(128)]
    pieces = read(family, tokenizer_of(family).encode(written(family, calls)), [7])
    assert [(name, json.loads(values)) for name, values in calls_in(pieces)] == calls


NO_CALLS = {
    "qwen3_coder": [
        "<tool_call>\n{nonsense}\n</tool_call>",
        "<tool_call>\n<function=write>\n<parameter=text>\na\n</tool_call>",
        "<tool_call>\n<function=a b>\n</function>\n</tool_call>",
        "<tool_call>\n<function=write>\nHi\n</function>\n</tool_call>",
        "Use <tool_call> and <function=x>.",
    ],
    "magistral": [
        "[TOOL_CALLS]",
        "[TOOL_CALLS]Hi there {",
        "[ARGS]{}",
        "[TOOL_CALLS][ARGS]{}",
        "[TOOL_CALLS]f[ARGS][1]",
    ],
    "mistral_v7": ["[TOOL_CALLS][{]}", '[TOOL_CALLS][{"a": 1}]', "[TOOL_CALLS][]", '[TOOL_CALLS][{"name": "f"}, 3]'],
    "llama4": [
        "[1, 2]",
        "[f(1)]",
        "[f(a=b)]",
        "[f(a=1)",
        "[f(a=1), 3]",
        "[f(a='x)]",
        "[]",
        "[f()(a=1)]",
        "See [f(a=1)]",
        '[f(a="\\ud800")]',
    ],
    "gpt_oss": ["<|channel|>commentary to=functions.write<|message|>text"],
}


@pytest.mark.parametrize(("family", "text"), [(family, text) for family, texts in NO_CALLS.items() for text in texts])
def test_what_is_no_call_stays_text(family: str, text: str) -> None:
    tokenizer = tokenizer_of(family)
    ids = tokenizer.encode(text)
    for sizes in ([1], [2], [1000]):
        pieces = read(family, ids, sizes)
        assert calls_in(pieces) == []
        shown = tokenizer.decode(ids, skip_special_tokens=True)
        assert said_in(pieces) == ("text" if family == "gpt_oss" else shown)


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_mutated_calls_never_raise_nor_depend_on_splits(family: str, data: st.DataObject) -> None:
    text = written(family, [("write", {"text": "a🦊b", "count": 3}), ("clock", {})])
    for _ in range(data.draw(st.integers(0, 4))):
        begin = data.draw(st.integers(0, len(text)))
        end = min(len(text), begin + data.draw(st.integers(0, 9)))
        new = data.draw(
            st.sampled_from(["", "🦊", '"', "'", "{", "}", "[", "(", "\\", "<", "</parameter>", "[ARGS]", text[:30]])
        )
        text = text[:begin] + new + text[end:]
    ids = tokenizer_of(family).encode(text + "!")
    whole = read(family, ids, [len(ids)])
    split = read(family, ids, data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    assert (calls_in(whole), said_in(whole)) == (calls_in(split), said_in(split))
    for name, _ in calls_in(whole):
        assert name
    json.dumps(calls_in(whole), ensure_ascii=False).encode()


@pytest.mark.parametrize("family", ["qwen3_coder", "mistral_v7", "magistral", "llama4", "gpt_oss"])
@pytest.mark.parametrize(
    "unit", ["<tool_call>", "<tool_call>\n<function=f>\n", "[", "[f(", "</function></tool_call>", "[TOOL_CALLS]", "{"]
)
def test_each_character_is_read_a_bounded_time(family: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader returns and keeps is no more than it was given, a mebibyte of openings."""
    del monkeypatch
    form = MessageForm(None, Opened.CLOSED, FAMILIES[family], offered=TOOLS)
    reader = form.reader(TokenTable(backend_of(tokenizer_of(family))))
    text = (unit * (2**20 // len(unit) + 1))[: 2**20]
    pieces = [piece for at in range(0, len(text), 4096) for piece in reader.push(text[at : at + 4096])]
    pieces += reader.finish()
    assert sum(len(getattr(piece, "text", "")) for piece in pieces) <= len(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_first_of_several_calls_is_told_where_asked(family: str) -> None:
    text = written(family, [("write", {"text": "a"}), ("clock", {})])
    body = CHAT | {"messages": [{"role": "user", "content": "?"}], "tools": [WRITE, CLOCK], "max_tokens": 500}
    for several in (True, False):
        fields = body | {"parallel_tool_calls": several}
        (choice,) = post(service_of(family, text, FAMILIES[family]), "/v1/chat/completions", fields).json()["choices"]
        assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["write", "clock"][
            : 1 + several
        ]
        streamed = post(service_of(family, text, FAMILIES[family]), "/v1/chat/completions", fields | {"stream": True})
        deltas = [event["choices"][0]["delta"] for event in events_of(streamed)[:-1]]
        pieces = [piece for delta in deltas for piece in delta.get("tool_calls", ())]
        assert [piece["function"]["name"] for piece in pieces if "id" in piece] == ["write", "clock"][: 1 + several]
        arguments = "".join(piece["function"]["arguments"] for piece in pieces if piece["index"] == 0)
        assert json.loads(arguments) == {"text": "a"}


def test_ids_of_calls_fit_templates_that_bound_them() -> None:
    call = {"id": "call_1234567890", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1234567890", "content": "noon"},
    ]
    service = service_of("mistral_v7", "Hi", "mistral_list")
    response = post(service, "/v1/chat/completions", CHAT | {"messages": messages, "tools": [CLOCK]})
    assert response.status_code == 200, response.text


def test_marks_of_calls_are_asked_for_only_with_tools() -> None:
    service = service_of("magistral", "Hi", "mistral")
    for tools in ([], [CLOCK]):
        post(service, "/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": "?"}], "tools": tools})
    without, with_tools = (set(request.tag_ids) for request in service.requests)
    assert with_tools - without == {
        tokenizer_of("magistral").convert_tokens_to_ids(mark) for mark in ("[TOOL_CALLS]", "[ARGS]")
    }
