"""Whatever is sent, the answer is never the service's fault."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serve_app.api.openai.bodies import ChatBody, CompletionBody, OutriderOptions
from serve_app.api.openai.unsupported import NOT_YET
from tests.unit.serve_app.api.asking import CHAT, COMPLETION, JSON, ask, error_of, events_of, post
from tests.unit.serve_app.api.text_service import TextService

ENDPOINTS = [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]
NUMBERS = [0, 1, 2, 16, 17, 20, 21, 64, 65, 49151, 49152, 2**63, -(2**63) - 1, 10**400, 1e308, -0.0, 0.5]
TEXTS = ["", "\x00", "<|im_end|>", "text", "user", "5", " ", "\ud800", "🦊", "a" * 2000]
LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from([*NUMBERS, *TEXTS]) | st.floats() | st.text()
KEYS = ["role", "content", "type", "text", "include_usage", "5", "x\x00", "\ud800", *OutriderOptions.model_fields]
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
LIKELY = {  # fields by values of about the right kind
    "n": st.integers(0, 5),
    "prompt": st.lists(st.text(min_size=1, max_size=4), max_size=5)
    | st.lists(st.integers(-1, 49_151), max_size=5)
    | st.lists(st.lists(st.integers(0, 49_151), min_size=1, max_size=3), max_size=5)
    | st.text(),
    "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=4),
    "max_tokens": st.integers(0, 20),
    "min_tokens": st.integers(-1, 10),
    "logprobs": st.just(True) | st.integers(0, 21),
    "top_logprobs": st.integers(0, 21),
    "echo": st.booleans(),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}),
    "best_of": st.integers(1, 3),
    "outrider": st.fixed_dictionaries({"spans": st.booleans(), "window": st.integers(-1, 17)}),
    "logit_bias": st.dictionaries(st.integers(0, 50_000).map(str), st.floats(-101, 101), max_size=3),
}
FIELDS = st.sampled_from([*CompletionBody.model_fields, *ChatBody.model_fields, *NOT_YET, "unknown"])
ANY_FIELDS = st.dictionaries(FIELDS, VALUES, max_size=4)
LIKELY_FIELDS = st.sets(st.sampled_from(sorted(LIKELY)), max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({name: LIKELY[name] for name in sorted(names)})
)
TYPICAL = {"seed": 1, "n": 2, "logprobs": 1, "echo": True, "stop": ["x"], "temperature": 0.5, "logit_bias": {"5": 1}}


def answered(path: str, content: bytes) -> None:
    """Check that a body is served or refused, in OpenAI's form."""
    service = TextService()
    response = ask(service, "POST", path, content=content, headers=JSON)
    assert response.status_code in {200, 400, 404}
    assert (response.status_code == 200) == bool(service.requests)
    if response.status_code != 200:
        assert error_of(response)["message"]
    elif response.headers["content-type"] == "application/json":
        assert len(response.json()["choices"]) == len(service.requests)
    else:
        assert events_of(response)[-1] == "[DONE]"


@settings(max_examples=300)
@given(st.sampled_from(ENDPOINTS), ANY_FIELDS | LIKELY_FIELDS, st.booleans())
@example(ENDPOINTS[0], {"stop": "\ud800"}, True)
@example(ENDPOINTS[1], {"messages": [{"role": "user", "content": "\udfff"}]}, True)
def test_no_body_makes_a_server_error(
    endpoint: tuple[str, dict[str, Any]], fields: dict[str, Any], over_a_valid_one: bool
) -> None:
    path, valid = endpoint
    answered(path, json.dumps(valid | fields if over_a_valid_one else fields).encode())


@settings(max_examples=200)
@given(st.sampled_from(ENDPOINTS), st.data())
def test_no_change_to_the_bytes_of_a_body_makes_a_server_error(
    endpoint: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    path, valid = endpoint
    body = json.dumps(valid | TYPICAL if path == "/v1/completions" else valid).encode()
    at = data.draw(st.integers(0, len(body)))
    until = data.draw(st.integers(at, min(len(body), at + 8)))
    answered(path, body[:at] + data.draw(st.binary(max_size=8)) + body[until:])


@given(st.sampled_from(ENDPOINTS), st.binary(max_size=60))
def test_no_bytes_make_a_server_error(endpoint: tuple[str, dict[str, Any]], content: bytes) -> None:
    assert ask(TextService(), "POST", endpoint[0], content=content, headers=JSON).status_code == 400


@pytest.mark.parametrize(
    "content",
    [
        b'{"model": "smollm2", "prompt": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"a":' * 8_000 + b"1" + b"}" * 8_000,
        b'{"model": "smollm2", "prompt": "x", "temperature": NaN}',
        b'{"model": "smollm2", "prompt": "x", "temperature": 1e999}',
        b'{"model": "smollm2", "prompt": "x", "temperature": -Infinity}',
        b'{"model": "smollm2", "prompt": "x", "seed": ' + b"9" * 4_000 + b"}",
        b'{"model": "smollm2", "prompt": "x", "seed": ' + b"9" * 40_000 + b"}",
        b'{"model": "smollm2", "prompt": "\\ud800"}',
        b'{"model": "smollm2", "prompt": "\xed\xa0\x80"}',
        b'{"model": "smollm2", "prompt": ["\\ud83d", "\\udd8a"]}',
        b'{"model": "smollm2", "prompt": "x", "stop": "\\ud800"}',
        b'{"model": "smollm2", "prompt": "x", "user": "\\udc00"}',
        b'{"model": "\\ud800", "prompt": "x"}',
        b'{"model": "smollm2", "prompt": "x", "logit_bias": {"\\ud800": 1}}',
        b'{"model": "smollm2", "prompt": "x", "n": ' + b"9" * 4_000 + b"}",
        b'{"model": "smollm2", "prompt": "x", "logprobs": 1e400}',
        b'{"model": "smollm2", "prompt": []}',
        b'{"model": "smollm2", "prompt": [[], []]}',
        b'{"model": "smollm2", "prompt": [""]}',
        b'{"model": "smollm2", "prompt": ' + b"[[1]," * 5_000 + b"1" + b"]" * 5_000 + b"}",
        b'{"model": "smollm2", "prompt": "x", "\\udfff": 1}',
        b'{"model": "smollm2", "prompt": [9223372036854775808]}',
        b'{"model": "smollm2", "prompt": [1e3]}',
        b'{"model": "smollm2", "prompt": "x", "logit_bias": {"\\u0000": 1}}',
        b'{"model": "smollm2", "prompt": "x", "prompt": 5}',
    ],
)
def test_malicious_json_is_a_400(content: bytes) -> None:
    response = ask(TextService(), "POST", "/v1/completions", content=content, headers=JSON)
    assert response.status_code == 400
    assert len(error_of(response)["message"]) <= 600


def test_null_bytes_and_repeated_fields_are_what_json_makes_of_them() -> None:
    service = TextService()
    assert post(service, "/v1/completions", COMPLETION | {"prompt": "a\x00b", "stop": "\x00"}).status_code == 200
    twice = b'{"model": "smollm2", "prompt": "x", "max_tokens": 3, "max_tokens": 2}'
    assert ask(service, "POST", "/v1/completions", content=twice, headers=JSON).status_code == 200
    assert service.requests[1].max_tokens == 2
