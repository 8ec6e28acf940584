"""Reasoning: told apart from the answer by each family's marks, however text and tokens are split."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.requests import TagPlace
from outrider.text.shown import IncrementalText
from outrider.text.tokens import TokenTable, backend_of
from serve_app.api.openai.reasoning.families import Opened, thinking_of
from serve_app.api.openai.reasoning.message import MessageForm
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Piece, Said, Thought
from tests.unit.serve_app.api.asking import CHAT, events_of, post
from tests.unit.serve_app.api.reasoning.model_families import TOKENS, limits_for, service_of, thinking_in, tokenizer_of

OBJECT = {"type": "json_object"}
LEFT = {
    "qwen3": Opened.MAYBE,
    "deepseek_r1": Opened.OPEN,
    "magistral": Opened.MAYBE,
    "granite": Opened.MAYBE,
    "kimi": Opened.OPEN,
    "gpt_oss": Opened.MAYBE,
}
HARMONY = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi."
READ = {  # family, text, reasoning, content
    "a thought and an answer": ("qwen3", "<think>\nHm.\n</think>\n\nHi.", "Hm.", "Hi."),
    "no thought": ("qwen3", " Hi <think>there</think>.", "", " Hi <think>there</think>."),
    "not ended": ("qwen3", "<think>\nHm.\n\nSo", "Hm.\n\nSo", ""),
    "twice": ("qwen3", "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
    "opened within": ("qwen3", "<think>a<think>b</think>c", "a<think>b", "c"),
    "a closing tag in a text behind it": ("qwen3", '<think>a</think>{"b": "</think>"}', "a", '{"b": "</think>"}'),
    "empty": ("qwen3", "<think>\n\n</think>\n\nHi", "", "Hi"),
    "opened by the prompt": ("deepseek_r1", "Hm.\n</think>\n\nHi.", "Hm.", "Hi."),
    "opened by the prompt, and again": ("deepseek_r1", "<think>Hm.</think>Hi.", "<think>Hm.", "Hi."),
    "closed twice": ("deepseek_r1", "a</think></think>\n\nb", "a", "</think>\n\nb"),
    "never closed": ("deepseek_r1", "Hm. < think", "Hm. < think", ""),
    "special tokens": ("magistral", "[THINK]Hm.[/THINK]Hi.", "Hm.", "Hi."),
    "two marks of text": ("granite", "<think>Hm.</think>\n<response>Hi.</response>\n", "Hm.", "Hi."),
    "text that resembles them": ("granite", "<think>Hm.</thin</think><respond> Hi </response> x", "Hm.</thin", None),
    "one mark of text": ("kimi", "Hm.◁/thin k▷◁/think▷Hi ◁think▷.", "Hm.◁/thin k▷", "Hi ◁think▷."),
    "channels": ("gpt_oss", HARMONY, "Hm.", "Hi."),
    "a channel that was cut": ("gpt_oss", "<|channel|>analysis<|message|>Hm", "Hm", ""),
    "a header that was cut": ("gpt_oss", "<|channel|>analysis", "", ""),
    "a second header that was cut": (
        "gpt_oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final",
        "Hm.",
        "",
    ),
    "a channel of another name": ("gpt_oss", "<|channel|>other<|message|>Hm", "", "Hm"),
    "no channel": ("gpt_oss", "Hi there.", "", "Hi there."),
    "a preamble": (
        "gpt_oss",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>analysis<|message|>Hm<|end|>",
        "Hm",
        "I look.",
    ),
}


def pushed(family: str, ids: list[int], sizes: Iterator[int]) -> Iterator[tuple[str, tuple[TagPlace, ...]]]:
    """What a coordinator tells of tokens, so many at a time."""
    text, at = IncrementalText(tokenizer_of(family)), 0
    text.tag_ids = thinking_in(family).tag_ids
    while at < len(ids):
        size = next(sizes)
        shown = "".join(text.push(token_id) for token_id in ids[at : at + size])
        at += size
        yield shown + (text.finish() if at >= len(ids) else ""), text.take_tags()


def read(family: str, ids: list[int], sizes: list[int], left: Opened | None = None, tools: str = "") -> list[Piece]:
    form = MessageForm(thinking_in(family), LEFT[family] if left is None else left, tools)
    reader = form.reader(TokenTable(backend_of(tokenizer_of(family))))
    pieces = [piece for text, places in pushed(family, ids, cycle(sizes)) for piece in reader.push(text, places)]
    return pieces + reader.finish()


def joined(pieces: list[Piece], kind: type[Any]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, kind) and not isinstance(piece, CallBegun))


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(("family", "text", "thought", "said"), READ.values(), ids=READ.keys())
def test_reasoning_is_told_apart(family: str, text: str, thought: str, said: str | None, size: int) -> None:
    pieces = read(family, tokenizer_of(family).encode(text), [size])
    assert joined(pieces, Thought) == thought
    assert joined(pieces, Said) == ("<respond> Hi </response> x" if said is None else said)


@pytest.mark.parametrize("family", ["qwen3", "deepseek_r1"])
def test_a_mark_spelled_by_other_tokens_is_text(family: str) -> None:
    tokenizer = tokenizer_of(family)
    spelled = [token_id for part in ("</th", "ink>") for token_id in tokenizer.encode(part)]
    ids = [*tokenizer.encode("<think>" if family == "qwen3" else ""), *spelled, *tokenizer.encode("a</think>b")]
    for size in (1, 2, 3, 100):
        pieces = read(family, ids, [size])
        assert (joined(pieces, Thought), joined(pieces, Said)) == ("</think>a", "b")


@pytest.mark.parametrize("family", LEFT)
@given(data=st.data())
def test_no_split_changes_what_is_read_and_nothing_is_lost(family: str, data: st.DataObject) -> None:
    marks = [*TOKENS[family][0], *TOKENS[family][1], "<think>", "</think>", "◁/think▷", "<response>", "</response>"]
    parts = data.draw(st.lists(st.sampled_from([*marks, "analysis", "a", " ", "\n", "🦊", "<", "final"]), max_size=20))
    ids = tokenizer_of(family).encode("".join(parts))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    left = data.draw(st.sampled_from(Opened))
    whole, split = read(family, ids, [len(ids) + 1], left), read(family, ids, sizes, left)
    for kind in (Thought, Said):
        assert joined(whole, kind) == joined(split, kind)
    kept = joined(whole, Thought) + joined(whole, Said)
    assert kept.count("🦊") == parts.count("🦊") or family == "gpt_oss"
    if left is Opened.CLOSED and family not in ("granite", "gpt_oss"):
        assert kept == tokenizer_of(family).decode(ids, skip_special_tokens=True)


def test_a_prompt_tells_how_it_leaves_the_reasoning() -> None:
    chat = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>a</think>b"},
        {"role": "user", "content": "?"},
    ]
    for family, left in LEFT.items():
        prompt = str(tokenizer_of(family).apply_chat_template(chat, add_generation_prompt=True, tokenize=False))
        assert thinking_in(family).left_by(prompt) is left
    closed = tokenizer_of("qwen3").apply_chat_template(
        chat, add_generation_prompt=True, tokenize=False, enable_thinking=False
    )
    assert thinking_in("qwen3").left_by(str(closed)) is Opened.CLOSED


def test_a_setting_wins() -> None:
    thinking = thinking_of(tokenizer_of("magistral"), "[/THINK]")
    assert thinking is not None
    assert (thinking.opens, thinking.closes) == (thinking_in("magistral").opens, thinking_in("magistral").closes)
    assert thinking_of(tokenizer_of("qwen3"), "</tool_call>").closes.text == "</tool_call>"  # type: ignore[union-attr]


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize(("family", "text", "thought", "said"), READ.values(), ids=READ.keys())
def test_streams_and_documents_tell_the_same(
    family: str, text: str, thought: str, said: str | None, *, logprobs: bool
) -> None:
    body = CHAT | {"max_tokens": 90, "logprobs": logprobs, "return_token_ids": True, "outrider": {"details": True}}
    body["messages"] = [{"role": "user", "content": "Hi"}]
    whole = post(service_of(family, text), "/v1/chat/completions", body)
    assert whole.status_code == 200, whole.text
    (choice,) = whole.json()["choices"]
    message = choice["message"]
    said = "<respond> Hi </response> x" if said is None else said
    assert (message.get("reasoning_content", ""), message["content"]) == (thought, said or None if thought else said)
    assert "".join(token["text"] for token in choice["outrider"]["tokens"]) == tokenizer_of(family).decode(
        choice["token_ids"], skip_special_tokens=True
    )
    streamed = post(service_of(family, text), "/v1/chat/completions", body | {"stream": True})
    choices = [event["choices"][0] for event in events_of(streamed)[:-1]]
    deltas = [each["delta"] for each in choices]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == thought
    assert "".join(delta.get("content", "") for delta in deltas) == said
    assert [token for each in choices for token in each.get("token_ids", ())] == choice["token_ids"]
    if logprobs:
        scored = [entry["token"] for each in choices for entry in (each["logprobs"] or {}).get("content", ())]
        assert scored == [entry["token"] for entry in choice["logprobs"]["content"]]


@pytest.mark.parametrize(
    ("family", "text", "reasoning"),
    [
        ("qwen3", "<think>Hm, so.</think>Hi.", "<think>Hm, so.</think>"),
        ("deepseek_r1", "Hm, so.</think>Hi.", "Hm, so.</think>"),
        ("granite", "<think>Hm, so.</think>Hi.", "<think>Hm, so.</think>"),
        ("gpt_oss", HARMONY, "<|channel|>analysis<|message|>Hm.<|end|>"),
        ("qwen3", "Hi.", ""),
        ("deepseek_r1", "Hm, so", "Hm, so"),
    ],
)
def test_usage_counts_reasoning(family: str, text: str, reasoning: str) -> None:
    body = CHAT | {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 90}
    usage = post(service_of(family, text), "/v1/chat/completions", body).json()["usage"]
    counted = usage["completion_tokens_details"]["reasoning_tokens"]
    assert counted == len(tokenizer_of(family).encode(reasoning))
    streamed = post(
        service_of(family, text),
        "/v1/chat/completions",
        body | {"stream": True, "stream_options": {"include_usage": True}},
    )
    assert events_of(streamed)[-2]["usage"]["completion_tokens_details"]["reasoning_tokens"] == counted


def test_reasoning_can_be_left_out() -> None:
    body = CHAT | {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 90, "include_reasoning": False}
    response = post(service_of("qwen3", "<think>Hm.</think>Hi."), "/v1/chat/completions", body).json()
    assert response["choices"][0]["message"] == {"role": "assistant", "content": "Hi.", "refusal": None}
    assert response["usage"]["completion_tokens_details"]["reasoning_tokens"] > 2
    streamed = post(service_of("qwen3", "<think>Hm.</think>Hi."), "/v1/chat/completions", body | {"stream": True})
    assert "reasoning" not in streamed.text
    cut = post(service_of("qwen3", "<think>Hm"), "/v1/chat/completions", body).json()["choices"][0]["message"]
    assert cut["content"] is None


@pytest.mark.parametrize("fields", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}])
def test_a_request_can_turn_reasoning_off(fields: dict[str, Any]) -> None:
    service = service_of("qwen3", "<think> is a tag.")
    body = CHAT | {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 90, **fields}
    message = post(service, "/v1/chat/completions", body).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "<think> is a tag.", "refusal": None}


@pytest.mark.parametrize(
    ("family", "fields", "opens", "behind"),
    [
        ("qwen3", {}, "<think>", "</think>"),
        ("qwen3", {"reasoning_effort": "none"}, None, None),
        ("deepseek_r1", {}, None, "</think>"),
        ("kimi", {}, None, None),
    ],
)
def test_a_grammar_begins_behind_reasoning(
    family: str, fields: dict[str, Any], opens: str | None, behind: str | None
) -> None:
    """Earlier answers' marks do not count; marks of several tokens cannot be waited for."""
    service = service_of(family, "Hi")
    earlier = {"role": "assistant", "content": "b", "reasoning_content": "a"}
    messages = [{"role": "user", "content": "Hi"}, earlier, {"role": "user", "content": "?"}]
    body = CHAT | {"messages": messages, "response_format": OBJECT, **fields}
    response = post(service, "/v1/chat/completions", body)
    assert response.status_code == 200, response.text
    grammar = service.requests[0].params.grammar
    assert grammar is not None
    ids = [None if mark is None else tokenizer_of(family).convert_tokens_to_ids(mark) for mark in (opens, behind)]
    assert [grammar.opened_by, grammar.begins_after] == ids


STRICT = {"type": "function", "function": {"name": "look", "strict": True, "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "reasoning_content"),
        ({"tools": [STRICT]}, "reasoning_content"),  # the text before calls is free
        ({"response_format": OBJECT}, "content"),
    ],
)
def test_an_answer_in_a_form_from_its_first_token_on_is_no_reasoning(fields: dict[str, Any], name: str) -> None:
    """Kimi's prompt opens its reasoning, whose end is no token that a form could wait for."""
    body = CHAT | {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 90, **fields}
    message = post(service_of("kimi", '{"a": 1}', "hermes"), "/v1/chat/completions", body).json()["choices"][0][
        "message"
    ]
    assert {key: value for key, value in message.items() if value} == {"role": "assistant", name: '{"a": 1}'}


@pytest.mark.parametrize("family", ["qwen3", "gpt_oss"])
def test_earlier_reasoning_is_told_to_the_template(family: str) -> None:
    service = service_of(family, "Hi")
    earlier = {"role": "assistant", "content": "b", "reasoning_content": "I wondered"}
    body = CHAT | {"messages": [{"role": "user", "content": "Hi"}, earlier, {"role": "user", "content": "?"}]}
    assert post(service, "/v1/chat/completions", body).status_code == 200
    assert "I wondered" in str(tokenizer_of(family).decode(list(service.requests[0].prompt_ids)))


@pytest.mark.parametrize("stop", [["ink>"], ["</think>"], ["Hm"]])
def test_stop_strings_cut_reasoning_too(stop: list[str]) -> None:
    service = service_of("qwen3", "<think>So, Hm.</think>Hi.")
    body = CHAT | {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 90, "stop": stop}
    message = post(service, "/v1/chat/completions", body).json()["choices"][0]["message"]
    assert message.get("reasoning_content") == {"ink>": None, "</think>": "So, Hm.", "Hm": "So, "}[stop[0]]


def test_calls_behind_reasoning_are_read() -> None:
    text = '<think>Hm.</think>\n\n<tool_call>\n{"name": "f", "arguments": {"a": "</think>"}}\n</tool_call>'
    for size in (1, 3, 100):
        pieces = read("qwen3", tokenizer_of("qwen3").encode(text), [size], tools="hermes")
        assert (joined(pieces, Thought), joined(pieces, Said)) == ("Hm.", "")
        assert joined(pieces, CallArguments) == '{"a": "</think>"}'


@pytest.mark.parametrize("family", ["qwen3", "deepseek_r1", "granite", "gpt_oss"])
def test_each_character_is_read_a_bounded_time(family: str) -> None:
    """A mebibyte of what may be a mark each time: as many steps as for half of it, twice."""
    reader = MessageForm(thinking_in(family), LEFT[family]).reader(TokenTable(backend_of(tokenizer_of(family))))
    read = 0
    for _ in range(2**20 // 32):
        read += len(joined(reader.push("<think></thin\n\n</th<resp\n</respo"), Thought))
    assert read + sum(len(getattr(piece, "text", "")) for piece in reader.finish()) <= 2**20 + 2**12


def test_a_limit_knows_the_models_marks() -> None:
    assert replace(limits_for("qwen3"), tool_format="hermes").thinking == thinking_in("qwen3")
    assert json.dumps(READ)
