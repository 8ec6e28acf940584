"""Tools: how calls are read, however their text is split; what a model is told; what it is made to say."""

import json
from dataclasses import replace
from itertools import cycle, pairwise
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.text.tokens import TokenTable, backend_of
from serve_app.answers import MessageDelta, ToolCall
from serve_app.api.openai.reasoning.marks import Text
from serve_app.api.openai.reasoning.message import MessageForm
from serve_app.api.openai.reasoning.pieces import CallArguments, CallBegun, Said
from serve_app.api.openai.tools.deltas import MessageDeltas, WholeMessage
from serve_app.api.openai.tools.formats.registry import FORMS, form_in
from tests.unit.serve_app.api.asking import CHAT, error_of, events_of, post
from tests.unit.serve_app.api.test_structured import follows
from tests.unit.serve_app.api.text_service import LIMITS, TOKENIZER, TextService

TABLE = TokenTable(backend_of(TOKENIZER))
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": PARAMETERS}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
NAMED = {"type": "function", "function": {"name": "weather"}}
PARIS, ROME = '{"city": "Paris {}\\"}"}', '{"city": "Rome"}'


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


TAGGED = '{"text": "use </tool_call> to close, \\"</tool_call>"}'


def llama(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


TWO = [("weather", PARIS), ("clock", "{}")]
SAID = {
    "one": ("hermes", hermes("weather", PARIS), "", TWO[:1]),
    "behind text": ("hermes", "I look.\n" + hermes("weather", PARIS), "I look.\n", TWO[:1]),
    "two": ("hermes", hermes("weather", PARIS) + "\n" + hermes("clock", "{}"), "", TWO),
    "none": ("hermes", "No <tool_cal, none < needed", "No <tool_cal, none < needed", []),
    "broken": ("hermes", "<tool_call>\n{nonsense}\n</tool_call>", "<tool_call>\n{nonsense}\n</tool_call>", []),
    "other order": (
        "hermes",
        '<tool_call>{"arguments": {"city": "Rome"}, "name": "weather"}</tool_call>',
        "",
        [("weather", ROME)],
    ),
    "a tag within an argument": (
        "hermes",
        hermes("weather", TAGGED) + hermes("clock", "{}"),
        "",
        [("weather", TAGGED), TWO[1]],
    ),
    "a tag within an argument, read when whole": (
        "hermes",
        '<tool_call>{"arguments": ' + TAGGED + ', "name": "weather"}</tool_call> Done.',
        " Done.",
        [("weather", TAGGED)],
    ),
    "a quote without end": (
        "hermes",
        '<tool_call>{"name: 1}</tool_call> Sorry.\n' + hermes("clock", "{}"),
        '<tool_call>{"name: 1}</tool_call> Sorry.\n',
        TWO[1:],
    ),
    "parameters": ("hermes", hermes("weather", ROME).replace("arguments", "parameters"), "", [("weather", ROME)]),
    "arguments of llama": (
        "llama3_json",
        llama("weather", ROME).replace("parameters", "arguments"),
        "",
        [("weather", ROME)],
    ),
    "arguments as text": ("hermes", hermes("weather", json.dumps(ROME)), "", [("weather", ROME)]),
    "no arguments": ("hermes", '<tool_call>{"name": "clock"}</tool_call>', "", TWO[1:]),
    "null for arguments": ("hermes", hermes("clock", "null"), "", TWO[1:]),
    "empty text for arguments": ("hermes", hermes("clock", '""'), "", TWO[1:]),
    "a large number": (
        "hermes",
        '<tool_call>{"arguments": {"n": 1e400}, "name": "f"}</tool_call>',
        "",
        [("f", '{"n": 1e400}')],
    ),
    "a brace too many": ("hermes", hermes("clock", "{}").replace("}}", "}}}"), "", TWO[1:]),
    "text behind a call": ("hermes", hermes("clock", "{}") + "\nDone.\n\n- one\n", "\nDone.\n\n- one\n", TWO[1:]),
    "text between calls": (
        "hermes",
        hermes("clock", "{}") + " and\n\n" + hermes("clock", "{}") + "\n",
        " and\n\n",
        [TWO[1], TWO[1]],
    ),
    "text behind a call of llama": ("llama3_json", llama("clock", "{}") + "; \nDone. {1}", "; \nDone. {1}", TWO[1:]),
    **{
        f"no call: {text}"[:60]: ("hermes", f"<tool_call>{text}</tool_call>", f"<tool_call>{text}</tool_call>", [])
        for text in (
            '{"name": "f\\x", "arguments": {}}',
            '{"name": "f\n", "arguments": {}}',
            '{"name": "\\ud800", "arguments": {}}',
            '{"name": "", "arguments": {}}',
            '{"name": ["f"], "arguments": {}}',
            '{"name": "f", "arguments": [1]}',
            '{"name": "f", "arguments": "Rome"}',
            '{"name": "f", "arguments": "{\\"a\\": \\"\\ud800\\"}"}',
            '{"arguments": {"n": NaN}, "name": "f"}',
            '{"arguments": {"n": 1e}, "name": "f"}',
            "[" * 3000,
            "{}",
            "",
        )
    },
    "llama": ("llama3_json", llama("weather", PARIS), "", TWO[:1]),
    "two of llama": ("llama3_json", llama("weather", PARIS) + "; " + llama("clock", "{}"), "", TWO),
    "llama says": ("llama3_json", 'It is {"name": 1}.', 'It is {"name": 1}.', []),
    "llama's data": ("llama3_json", '{"a": 1}', '{"a": 1}', []),
}


@pytest.mark.parametrize(("form", "text", "said", "calls"), SAID.values(), ids=SAID.keys())
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_calls_are_read_however_the_text_is_split(
    form: str, text: str, said: str, calls: list[tuple[str, str]], size: int
) -> None:
    reader = FORMS[form].reader((), {})
    pieces = [piece for at in range(0, len(text), size) for piece in reader.push(Text(text[at : at + size], at))]
    pieces += reader.finish()
    assert "".join(piece.text for piece in pieces if isinstance(piece, Said)) == said
    found = list[tuple[str, str]]()
    for piece in pieces:
        if isinstance(piece, CallBegun):
            found.append((piece.name, ""))
        elif isinstance(piece, CallArguments):
            found[-1] = (found[-1][0], found[-1][1] + piece.text)
    assert found == calls


def deltas_of(form: str) -> MessageDeltas:
    return MessageDeltas(MessageForm(tools=form), TABLE, "c")


def whole_calls(text: str, form: str) -> tuple[str | None, list[ToolCall]]:
    deltas, whole = deltas_of(form), WholeMessage()
    whole.add([delta for delta, _ in deltas.push(text)])
    whole.add([delta for delta, _ in deltas.finish()])
    message = whole.written(thought=False)
    return message["content"], message.get("tool_calls", [])


FRAGMENTS = st.sampled_from(
    [*'{}[]"\\,: \n;a<', "<tool_call>", "</tool_call>", '"name"', '"arguments"', hermes("f", "{}"), llama("f", "{}")]
)


@given(
    form=st.sampled_from(["hermes", "llama3_json"]),
    parts=st.lists(FRAGMENTS, max_size=30),
    cuts=st.lists(st.integers(1, 9), min_size=1),
)
def test_a_split_changes_nothing(form: str, parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    whole = whole_calls(text, form)
    deltas, at, found = deltas_of(form), 0, list[MessageDelta]()
    for cut in cycle(cuts):
        if at >= len(text):
            break
        found += [delta for delta, _ in deltas.push(text[at : at + cut])]
        at += cut
    found += [delta for delta, _ in deltas.finish()]
    assert "".join(delta.get("content", "") for delta in found) == (whole[0] or "")
    pieces = [piece for delta in found for piece in delta.get("tool_calls", ())]
    for index, call in enumerate(whole[1]):
        assert (
            "".join(piece["function"]["arguments"] for piece in pieces if piece["index"] == index)
            == (call["function"]["arguments"])
        )
    json.dumps(whole, ensure_ascii=False).encode()


def test_arguments_leave_as_they_come() -> None:
    deltas = deltas_of("hermes")
    text = hermes("weather", PARIS)
    pushed = [deltas.push(char) for char in text]
    assert sum(map(bool, pushed)) > 10
    assert deltas.called


def test_a_document_and_a_stream_tell_the_same() -> None:
    text = "First. " + hermes("weather", PARIS) + "\n" + hermes("clock", "{}")
    service = TextService(texts=(text,), limits=replace(LIMITS, tool_format="hermes"))
    body = CHAT | {"tools": [WEATHER, CLOCK], "max_tokens": 90}
    (choice,) = post(service, "/v1/chat/completions", body).json()["choices"]
    assert choice["finish_reason"] in ("tool_calls", "length")  # the text service ends by length
    message = choice["message"]
    assert message["content"] == "First. "
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "weather", "arguments": PARIS},
        {"name": "clock", "arguments": "{}"},
    ]
    events = events_of(post(service, "/v1/chat/completions", body | {"stream": True}))
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "First. "
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", ())]
    for index in (0, 1):
        own = [piece for piece in pieces if piece["index"] == index]
        assert [piece["id"] for piece in own if "id" in piece] == [own[0]["id"]]
        assert "".join(piece["function"]["arguments"] for piece in own) == (PARIS, "{}")[index]
    assert all(before["index"] <= after["index"] for before, after in pairwise(pieces))


@pytest.mark.parametrize(
    ("choice", "reason"), [(None, "tool_calls"), ("auto", "tool_calls"), ("required", "tool_calls"), (NAMED, "stop")]
)
def test_why_a_choice_ended_that_calls_a_tool(choice: str | dict[str, Any] | None, reason: str) -> None:
    """As OpenAI and vLLM have it: one that was named ends like any other text."""
    service = TextService(texts=(hermes("weather", ROME) + " END",), limits=replace(LIMITS, tool_format="hermes"))
    body = CHAT | {"tools": [WEATHER], "tool_choice": choice, "stop": [" END"]}
    (whole,) = post(service, "/v1/chat/completions", body).json()["choices"]
    assert whole["message"]["tool_calls"][0]["function"]["name"] == "weather"
    events = events_of(post(service, "/v1/chat/completions", body | {"stream": True}))
    reasons = [event["choices"][0]["finish_reason"] for event in events[:-1]]
    assert (whole["finish_reason"], reasons[-1]) == (reason, reason)


def test_without_calls_a_message_is_its_text() -> None:
    assert whole_calls("Hello", "hermes") == ("Hello", [])
    service = TextService(texts=("Just text.",), limits=replace(LIMITS, tool_format="hermes"))
    (choice,) = post(service, "/v1/chat/completions", CHAT | {"tools": [WEATHER]}).json()["choices"]
    assert choice["message"]["content"] == "Just text."
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"city": "Rom', '{"city": "Rom"}'),
        ('{"city": "Rome", "n": 1', '{"city": "Rome"'),
        ('{"ci', "{}"),
        ("Rome", '"Rome"'),
    ],
)
def test_a_call_that_was_cut_is_taken_as_history(arguments: str, shown: str) -> None:
    service = TextService(limits=replace(LIMITS, tool_format="hermes"))
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "The call was cut."},
    ]
    response = post(service, "/v1/chat/completions", CHAT | {"messages": messages, "tools": [WEATHER]})
    assert response.status_code == 200, response.text
    assert f'"name": "weather", "arguments": {shown}' in str(TOKENIZER.decode(list(service.requests[0].prompt_ids)))


@pytest.mark.parametrize(
    ("form", "fields", "good", "bad"),
    [
        (
            "hermes",
            {"tool_choice": "required"},
            [hermes("clock", "{}"), hermes("weather", ROME)],
            ["Hi", hermes("x", "{}")],
        ),
        (
            "hermes",
            {"tool_choice": "required"},
            [hermes("clock", "{}") + "\n" + hermes("weather", ROME)],
            [hermes("weather", '{"city": 3}')],
        ),
        ("hermes", {"tool_choice": "required"}, [hermes("clock", "{}")], [hermes("clock", '{"a": 1}')]),
        (
            "hermes",
            {"tool_choice": NAMED},
            [hermes("weather", '{"city":"Rome"}')],
            [hermes("weather", '{\n"city": "Rome"}'), hermes("weather", '{"city":  "Rome"}')],
        ),
        (
            "hermes",
            {"tool_choice": "required", "parallel_tool_calls": False},
            [hermes("clock", "{}")],
            [hermes("clock", "{}") + "\n" + hermes("clock", "{}")],
        ),
        ("hermes", {"tool_choice": NAMED}, [hermes("weather", ROME)], [hermes("clock", "{}")]),
        ("llama3_json", {"tool_choice": NAMED}, [llama("weather", ROME)], [hermes("weather", ROME)]),
    ],
)
def test_a_tool_that_must_be_called_is_a_grammar(
    form: str, fields: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    service = TextService(limits=replace(LIMITS, tool_format=form))
    response = post(service, "/v1/chat/completions", CHAT | {"tools": [WEATHER, CLOCK], **fields})
    assert response.status_code == 200, response.text
    (request,) = service.requests
    assert [follows(request.params.grammar, text) for text in good] == [True] * len(good)
    assert [follows(request.params.grammar, text) for text in bad] == [False] * len(bad)


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_a_tool_that_may_be_called_is_no_grammar(choice: str | None) -> None:
    service = TextService(limits=replace(LIMITS, tool_format="hermes"))
    post(service, "/v1/chat/completions", CHAT | {"tools": [WEATHER], "tool_choice": choice})
    (request,) = service.requests
    assert request.params.grammar is None
    prompt = TOKENIZER.decode(list(request.prompt_ids))
    assert ("of a city" in prompt) == (choice != "none")


def test_calls_and_their_results_are_told_to_a_template_that_knows_none() -> None:
    service = TextService(limits=replace(LIMITS, tool_format="hermes"))
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ROME}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    response = post(service, "/v1/chat/completions", CHAT | {"messages": messages, "tools": [WEATHER]})
    assert response.status_code == 200, response.text
    prompt = str(TOKENIZER.decode(list(service.requests[0].prompt_ids)))
    assert hermes("weather", ROME) in prompt
    assert "<tool_response>\nsunny\n</tool_response>" in prompt
    assert prompt.index("Be brief.") < prompt.index("of a city") < prompt.index("Rome?")


@pytest.mark.parametrize(
    ("form", "fields", "param", "message"),
    [
        ("", {"tools": [WEATHER]}, "tools", "hermes, harmony, mistral, mistral_list, pythonic, llama3_json"),
        ("hermes", {"tools": [{"type": "web_search"}]}, "tools[0]", "'function'"),
        ("hermes", {"tools": [{"type": "custom", "custom": {}}]}, "tools[0]", "a function with one parameter"),
        ("hermes", {"tools": [{"type": ["custom"]}]}, "tools[0]", "'function'"),
        ("hermes", {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "a b"),
        ("hermes", {"tools": [WEATHER], "tool_choice": "weather"}, "tool_choice", "'required'"),
        ("hermes", {"tools": [CLOCK], "tool_choice": NAMED}, "tool_choice", "clock"),
        ("hermes", {"tool_choice": "required"}, "tool_choice", "tools to choose from"),
        ("hermes", {"messages": [{"role": "assistant"}]}, "messages[0].content", "missing"),
        (
            "hermes",
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "x",
                            "parameters": {"type": "object", "properties": {"a": {"type": "foo"}}},
                        },
                    }
                ],
                "tool_choice": "required",
            },
            "tool_choice",
            "foo",
        ),
    ],
)
def test_what_is_no_tool_is_refused_by_name(form: str, fields: dict[str, Any], param: str, message: str) -> None:
    response = post(TextService(limits=replace(LIMITS, tool_format=form)), "/v1/chat/completions", CHAT | fields)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert error["param"] == param
    assert message in error["message"]


def test_a_chat_template_tells_the_form() -> None:
    assert form_in("auto", "... <tool_call> ...") == "hermes"
    assert form_in("auto", "... <|python_tag|> ...") == "llama3_json"
    assert form_in("auto", TOKENIZER.chat_template) == ""
    assert form_in("none", "<tool_call>") == ""
    assert form_in("hermes", None) == "hermes"
    assert json.loads(PARIS)  # what braces and quotes within texts are to be read as


@pytest.mark.parametrize("form", ["hermes", "llama3_json"])
@pytest.mark.parametrize(
    "begun",
    ['{"name": "', '{"name: "\n', "[" * 2000, '{"name": "f", "arguments": {}, ', '{"name": "f", "parameters": {} '],
)
def test_a_call_that_does_not_end_costs_the_same_for_each_token(form: str, begun: str) -> None:
    opens = "<tool_call>" if form == "hermes" else ""
    reader = FORMS[form].reader((), {})
    reader.push(Text(opens + begun, 0))
    began_s = thread_time()
    for _ in range(50_000):
        reader.push(Text("    ", 0))
    assert thread_time() - began_s < 5.0  # 0.1 s


def test_a_call_with_a_long_head_is_read_when_it_is_whole() -> None:
    name = "f" * 2000
    text = f'<tool_call>{{"name": "{name}", "arguments": {{"a": 1}}}}</tool_call>'
    for size in (1, 7, len(text)):
        reader = FORMS["hermes"].reader((), {})
        pieces = [piece for at in range(0, len(text), size) for piece in reader.push(Text(text[at : at + size], at))]
        assert [*pieces, *reader.finish()] == [CallBegun(name), CallArguments('{"a": 1}')]
