"""vLLM's ``/tokenize``, ``/detokenize`` and ``/version``."""

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import httpx
import pytest

from outrider import __version__
from outrider.models.tokenizer import load_tokenizer
from serve_app.api.http import tokenizing
from serve_app.api.http.routes import make_api
from serve_app.api.openai.tokenizing import MAX_CHARS, MAX_TOKENS
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, JSON, ask, error_of, post, within
from tests.unit.serve_app.api.test_http_keys import ALICE, BOB, CountingGate
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, SETTINGS, TOKENIZER, TextService

TEXT = "Ünïcode 🦊, <|im_start|>user\n"
MESSAGES = [{"role": "user", "content": "Hello", "name": "ann"}, {"role": "assistant", "content": "Hi the"}]
LONG_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": f'{{"x": "{"a" * 20_000}"}}'}}


def answered(path: str, body: object) -> dict[str, Any]:
    response = post(TextService(), path, body)
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.mark.parametrize("named", [{}, {"model": MODEL}, {"model": None}])
def test_a_text_is_tokenised_as_a_prompt_and_back(named: dict[str, str]) -> None:
    ids = TOKENIZER(TEXT)["input_ids"]
    expected = {"count": len(ids), "max_model_len": 256, "tokens": ids, "token_strs": None}
    assert answered("/tokenize", {"prompt": TEXT, **named}) == expected
    strings = answered("/tokenize", {"prompt": TEXT, "return_token_strs": True})["token_strs"]
    assert strings == TOKENIZER.convert_ids_to_tokens(ids)
    assert answered("/detokenize", {"tokens": ids, **named}) == {"prompt": TEXT}
    assert answered("/detokenize", {"tokens": []}) == {"prompt": ""}


@pytest.mark.parametrize(
    ("asked", "template"),
    [
        ({}, {"add_generation_prompt": True}),
        ({"add_generation_prompt": False}, {"add_generation_prompt": False}),
        ({"continue_final_message": True}, {"continue_final_message": True}),
        ({"continue_final_message": True, "add_generation_prompt": False}, {"continue_final_message": True}),
    ],
)
def test_a_chat_is_rendered_first(asked: dict[str, bool], template: dict[str, Any]) -> None:
    text = TOKENIZER.apply_chat_template(MESSAGES, tokenize=False, **template)
    expected = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert answered("/tokenize", {"messages": MESSAGES, **asked})["tokens"] == expected


_THINKS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{% if enable_thinking %}<think>{% endif %}"
    "{{ reasoning_effort }}"
)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"},
        {"chat_template_kwargs": None, "reasoning_effort": "none"},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
    ],
    ids=str,
)
def test_a_chat_has_the_tokens_that_it_would_be_answered_by(path: str, asked: dict[str, Any]) -> None:
    tokenizer = load_tokenizer("smollm2-135m-instruct")
    tokenizer.chat_template = _THINKS
    service = TextService(tokenizer=tokenizer, limits=replace(LIMITS, tool_format="hermes"))
    assert post(service, "/v1/chat/completions", CHAT | asked).status_code == 200
    told = post(service, path, {"messages": CHAT["messages"], **asked})
    assert told.json()["tokens"] == list(service.requests[0].prompt_ids)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"continue_final_message": True}}, "chat_template_kwargs.continue_final_message"),
        ({"chat_template_kwargs": {"a": 10**9}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tools": [{}] * 129}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f" * 65}}]}, "tools[0].function.name"),
    ],
    ids=str,
)
def test_what_a_chat_could_not_ask_for_is_refused(asked: dict[str, Any], param: str) -> None:
    for path in ("/tokenize", "/v1/chat/completions"):
        response = post(TextService(), path, CHAT | asked)
        assert (response.status_code, error_of(response)["param"]) == (400, param), response.text


def test_a_text_may_be_longer_than_the_context() -> None:
    answer = answered("/tokenize", {"prompt": "word " * 5000})
    assert answer["count"] == len(answer["tokens"]) > 5000 > answer["max_model_len"]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": [1, 2]}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, 400, "prompt"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"messages": [{"role": "assistant", "tool_calls": [LONG_CALL]}]}, 400, "messages"),
        ("/tokenize", {"messages": MESSAGES, "chat_template": "{{ 1 }}"}, 400, "chat_template"),
        (
            "/tokenize",
            {"messages": MESSAGES, "add_generation_prompt": True, "continue_final_message": True},
            400,
            "continue_final_message",
        ),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404, "model"),
        ("/detokenize", {"tokens": [1], "model": "other"}, 404, "model"),
        ("/detokenize", {"tokens": [1, -1]}, 400, "tokens[1]"),
        ("/detokenize", {"tokens": [len(TOKENIZER)]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [True]}, 400, "tokens[0]"),
        ("/detokenize", {"prompt": "a"}, 400, "prompt"),
        ("/detokenize", [1], 400, None),
    ],
)
def test_what_cannot_be_read_is_named(path: str, body: object, status: int, param: str | None) -> None:
    response = post(TextService(), path, body)
    assert (response.status_code, error_of(response)["param"]) == (status, param), response.text


def test_so_many_tokens_are_spelled_at_once() -> None:
    service = TextService(settings=replace(SETTINGS, max_body_bytes=2**20))
    (short,) = TOKENIZER.encode("a")
    assert post(service, "/detokenize", {"tokens": [short] * MAX_TOKENS}).status_code == 200
    longest = max(range(len(TOKENIZER)), key=lambda token_id: len(TOKENIZER.decode([token_id])))
    spelled = len(TOKENIZER.decode([longest]))
    for tokens in ([short] * (MAX_TOKENS + 1), [longest] * (MAX_CHARS // spelled + 1)):
        response = post(service, "/detokenize", {"tokens": tokens})
        assert (response.status_code, error_of(response)["param"]) == (400, "tokens")


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})])
def test_it_takes_a_key_where_there_are_keys(path: str, body: object) -> None:
    """VLLM's does not; a processor's time is not for everybody."""
    gate = CountingGate()
    assert post(TextService(gate=gate), path, body).status_code == 401
    assert post(TextService(gate=gate), path, body, authorization=f"Bearer {ALICE}").status_code == 200
    assert gate.asked == [], "no response is made"


def test_long_texts_of_one_key_keep_others_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads that one key may have are held; meanwhile probes and another key are answered."""
    begun: list[int] = []
    three, held = threading.Event(), threading.Event()

    def slow(*_: object) -> list[bytes]:
        begun.append(threading.get_ident())
        if len(begun) == 3:
            three.set()
        assert held.wait(30)
        return [b"{}"]

    monkeypatch.setattr(tokenizing, "tokenize", slow)

    async def asked() -> None:
        transport = httpx.ASGITransport(make_api(TextService(gate=CountingGate())))
        async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:

            async def ask(path: str, body: object, key: str) -> int:
                headers = {**JSON, "authorization": f"Bearer {key}"}
                return (await client.post(path, content=json.dumps(body), headers=headers)).status_code

            many = [asyncio.create_task(ask("/tokenize", {"prompt": "a"}, ALICE)) for _ in range(6)]
            await asyncio.to_thread(three.wait, 30)
            for path, body in (("/v1/completions", COMPLETION), ("/detokenize", {"tokens": [1]})):
                assert (await client.get("/docs")).status_code == 200
                assert await ask(path, body, BOB) == 200
            assert len(begun) == 3
            held.set()
            assert await asyncio.gather(*many) == [200] * 6

    within(asked())


def test_the_version_is_outriders() -> None:
    assert ask(TextService(gate=CountingGate()), "GET", "/version").json() == {"version": __version__}


def test_the_name_of_who_speaks_reaches_the_template() -> None:
    """SmolLM2's has no use for it; others have."""
    tokenizer = TOKENIZER.__class__.from_pretrained(TOKENIZER.name_or_path)
    tokenizer.chat_template = "{% for m in messages %}{{ m.name | default('?') }}: {{ m.content }}\n{% endfor %}"
    service = TextService(tokenizer=tokenizer)
    assert post(service, "/v1/chat/completions", CHAT | {"messages": MESSAGES}).status_code == 200
    assert tokenizer.decode(service.requests[0].prompt_ids) == "ann: Hello\n?: Hi the\n"
    refused = post(service, "/v1/chat/completions", CHAT | {"messages": [MESSAGES[0] | {"name": 1}]})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "messages[0].name")
