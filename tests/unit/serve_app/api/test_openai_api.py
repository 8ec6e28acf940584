import json
from typing import Any

import pytest

from outrider.contracts.errors import OutriderError, ParameterError
from serve_app.api.http_errors import (
    MalformedBodyError,
    MissingFieldError,
    PromptTooLongError,
    UnknownFieldError,
    UnknownModelError,
    UnsupportedFieldError,
)
from serve_app.api.openai.bodies import ChatBody, CompletionBody
from serve_app.api.openai.parsing import parse_body
from serve_app.api.openai.prompts import read_prompts
from tests.unit.serve_app.api.asked_choices import CHAT, generation
from tests.unit.serve_app.api.text_service import LIMITS, TOKENIZER


@pytest.mark.parametrize(
    "neutral",
    [
        {"n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": None, "top_logprobs": 0, "min_tokens": 0},
        {"chat": 1, "n": 1, "best_of": 1, "echo": False, "min_tokens": 0, "outrider": {"spans": False}},
        {"chat": 1, "tools": [], "tool_choice": "none", "logprobs": False, "top_logprobs": 0, "modalities": ["text"]},
        {"chat": 1, "response_format": {"type": "text"}, "parallel_tool_calls": True, "store": False, "metadata": {}},
        {"temperature": None, "stop": None, "seed": None, "outrider": None, "stream_options": None, "max_tokens": None},
        {
            "outrider": {"window": None, "slo_class": None},
            "stop": [],
            "logit_bias": {},
            "audio": None,
            "service_tier": "auto",
        },
        {"messages": [{"role": "user", "content": "Hello", "name": None, "tool_calls": [], "refusal": None}]},
    ],
)
def test_values_that_ask_for_nothing_change_nothing(neutral: dict[str, Any]) -> None:
    assert generation(**neutral) == (generation(chat=1) if {"chat", "messages"} & set(neutral) else generation())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"n": 0}, ParameterError, r"^n needs an integer in 1\.\.16, found 0"),
        ({"n": 17}, ParameterError, r"^n needs an integer in 1\.\.16, found 17"),
        ({"n": True}, ParameterError, r"^n needs an integer in 1\.\.16, found True"),
        ({"logprobs": True}, ParameterError, "^logprobs needs an integer, found True"),
        ({"logprobs": 21}, ParameterError, r"^logprobs needs an integer in 0\.\.20, found 21"),
        ({"logprobs": -1}, ParameterError, r"^logprobs needs an integer in 0\.\.20, found -1"),
        ({"top_logprobs": 2}, UnsupportedFieldError, "^top_logprobs is not supported yet; give the number as logprobs"),
        ({"prompt_logprobs": 2}, UnsupportedFieldError, "^prompt_logprobs is not supported yet; use echo and logprobs"),
        ({"echo": 1}, ParameterError, "^echo needs true or false, found 1"),
        ({"best_of": 3}, UnsupportedFieldError, "^best_of is not supported yet; use n"),
        ({"n": 3, "best_of": 4}, UnsupportedFieldError, "^best_of is not supported yet; use n"),
        ({"suffix": "x"}, UnsupportedFieldError, "^suffix is not supported yet"),
        ({"min_tokens": 17}, ParameterError, r"^min_tokens needs an integer in 0\.\.16 \(max_tokens\), found 17"),
        ({"min_tokens": -1}, ParameterError, r"^min_tokens needs an integer in 0\.\.16"),
        ({"prompt": ["a"] * 65}, ParameterError, "^prompt needs at most 64 entries, found 65"),
        ({"prompt": ["a"] * 5, "n": 16}, ParameterError, r"^prompt needs at most 4 prompts with n: 16 \(64 choices"),
        ({"chat": 1, "logprobs": 1}, ParameterError, "^logprobs needs true or false, found 1"),
        ({"chat": 1, "top_logprobs": 2}, ParameterError, "^top_logprobs needs logprobs: true, found 2"),
        ({"chat": 1, "logprobs": True, "top_logprobs": 21}, ParameterError, r"^top_logprobs needs an integer in 0\."),
        ({"chat": 1, "echo": True}, UnsupportedFieldError, "^echo is not supported yet; use /v1/completions"),
        ({"chat": 1, "best_of": 2}, UnsupportedFieldError, "^best_of is not supported yet"),
        ({"chat": 1, "tools": [{}]}, UnsupportedFieldError, "^tools is not supported by this model"),
        ({"chat": 1, "tool_choice": "required"}, ParameterError, "^tool_choice needs tools to choose from"),
        ({"chat": 1, "functions": [{}]}, UnsupportedFieldError, "^functions is not supported yet"),
        ({"chat": 1, "prediction": {}}, UnsupportedFieldError, "^prediction is not supported yet"),
        ({"chat": 1, "modalities": ["text", "audio"]}, UnsupportedFieldError, "^modalities is not supported yet"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            UnsupportedFieldError,
            "stream_options.incl",
        ),
        (
            {"messages": [{"role": "user", "content": "a", "name": "B" * 257}]},
            ParameterError,
            r"^messages\[0\].name needs a text of at most 256 characters",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            UnsupportedFieldError,
            r"^messages\[0\].content\[0\].type 'image_url' is not supported yet",
        ),
        (
            {"messages": [{"role": "function", "content": "a"}]},
            ParameterError,
            r"^messages\[0\].role needs one of 'system', 'user', .* \(others are not supported yet\), found 'function'",
        ),
        ({"temprature": 1}, UnknownFieldError, "^temprature is not a known field; did you mean temperature"),
        ({"chat": 1, "maxTokens": 1}, UnknownFieldError, "^maxTokens is not a known field; did you mean max_tokens"),
        (
            {"chat": 1, "repeat_penalty": 2},
            UnsupportedFieldError,
            "^repeat_penalty is not supported yet; use rep",
        ),
        ({"lora": "a"}, UnsupportedFieldError, "^lora is not supported yet"),
        ({"guided_whitespace_pattern": " "}, UnsupportedFieldError, "^guided_whitespace_pattern is not supported yet"),
        (
            {"outrider": {"k": 1}},
            UnknownFieldError,
            "^outrider.k is not a known field; known here: window, protocol, expansion, rows, lookup, slo_class",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "texts": "b"}]}]},
            UnknownFieldError,
            r"^messages\[0\].content\[0\].texts is not a known field; did you mean text",
        ),
        ({"outrider": {"slo_class": 8}}, ParameterError, "^outrider.slo_class needs a text, found 8"),
        (
            {"outrider": {"slo_class": "fast"}},
            ParameterError,
            "^outrider.slo_class needs one of best_effort, speed_2, speed_4, speed_6, speed_8, found 'fast'",
        ),
        ({"chat": 1, "outrider": {"slo_class": ""}}, ParameterError, "^outrider.slo_class needs one of best_effort, "),
        ({"model": None}, MissingFieldError, "^model is missing"),
        (
            {"prompt": None},
            MissingFieldError,
            "^prompt is missing; it needs a text, a list of token ids, or a list of either",
        ),
        ({"messages": [{"role": "user"}]}, MissingFieldError, r"^messages\[0\].content is missing"),
        ({"model": "gpt-5"}, UnknownModelError, "^model needs one of: smollm2; found 'gpt-5'"),
        ({"temperature": "hot"}, ParameterError, "^temperature needs a finite number, found 'hot'"),
        ({"temperature": True}, ParameterError, "^temperature needs a finite number, found True"),
        ({"temperature": 2.5}, ParameterError, r"^temperature needs a number in \[0, 2\], found 2.5"),
        ({"top_p": 0}, ParameterError, r"^top_p needs a number in \(0, 1\], found 0"),
        ({"top_k": -2}, ParameterError, "^top_k needs an integer >= 0"),
        ({"stream": "yes"}, ParameterError, "^stream needs true or false, found 'yes'"),
        ({"stream_options": {"include_usage": True}}, ParameterError, "^stream_options needs stream: true, found"),
        ({"max_tokens": 0}, ParameterError, r"^max_tokens needs an integer in 1\.\.100, found 0"),
        ({"max_tokens": 16.0}, ParameterError, "^max_tokens needs an integer, found 16.0"),
        ({"chat": 1, "max_completion_tokens": -1}, ParameterError, r"^max_completion_tokens needs an integer in 1\.\."),
        (
            {"chat": 1, "max_completion_tokens": 4, "max_tokens": 5},
            ParameterError,
            "^max_tokens needs to equal max_comp",
        ),
        ({"prompt": [5] * 256}, PromptTooLongError, "^prompt needs at most 255 tokens .*, found 256 tokens"),
        (
            {"prompt": "a b " * 200},
            PromptTooLongError,
            "^prompt needs at most 255 tokens .*, found 40[01] tokens",
        ),
        ({"prompt": "a" * 30_000}, PromptTooLongError, "^prompt needs at most 20000 characters, found 30000"),
        ({"prompt": ""}, ParameterError, "^prompt needs at least one token"),
        ({"prompt": []}, ParameterError, "^prompt needs at least one token"),
        ({"prompt": {"a": 1}}, ParameterError, "^prompt needs a text, a list of token ids, or a list of either, found"),
        ({"prompt": [[1, "a"]]}, ParameterError, "^prompt needs a text, a list of token ids, or a list of either"),
        ({"prompt": [1, "a"]}, ParameterError, "^prompt needs a text, a list of token ids, or a list of either"),
        ({"prompt": [[1], "a"]}, ParameterError, "^prompt needs a text, a list of token ids, or a list of either"),
        ({"prompt": [[1], [2, 49152]]}, ParameterError, r"^prompt\[1\]\[1\] needs a token id in 0"),
        ({"prompt": ["a", ""]}, ParameterError, r"^prompt\[1\] needs at least one token"),
        ({"prompt": [[]]}, ParameterError, r"^prompt\[0\] needs at least one token"),
        ({"prompt": [[5] * 256, [5]]}, PromptTooLongError, r"^prompt\[0\] needs at most 255 tokens .*, found 256"),
        ({"prompt": [1, 49152]}, ParameterError, r"^prompt\[1\] needs a token id in 0\.\.49151, found 49152"),
        ({"prompt": [-1]}, ParameterError, r"^prompt\[0\] needs a token id"),
        ({"prompt": [2**70]}, ParameterError, r"^prompt\[0\] needs a token id"),
        ({"messages": []}, ParameterError, "^messages needs a list of at least one message"),
        ({"messages": "Hello"}, ParameterError, "^messages needs a list of at least one message, found 'Hello'"),
        ({"messages": ["Hello"]}, ParameterError, r"^messages\[0\] needs an object, found 'Hello'"),
        ({"messages": [{"role": "user", "content": 5}]}, ParameterError, r"^messages\[0\].content needs a text, or a"),
        ({"stop": ""}, ParameterError, "^stop needs a text or a list of up to 16 texts"),
        ({"stop": ["a", ""]}, ParameterError, "^stop needs a text or a list of up to 16 texts"),
        ({"stop": ["a"] * 17}, ParameterError, "^stop needs at most 16 entries, found 17"),
        ({"seed": 2**63}, ParameterError, "^seed needs an integer in -9223372036854775808..9223372036854775807, found"),
        ({"logit_bias": dict.fromkeys(map(str, range(1025)), 1)}, ParameterError, "^logit_bias needs at most 1024 ent"),
        ({"logit_bias": {"x": 1}}, ParameterError, r"^logit_bias needs token ids in 0\.\.49151 as keys, found 'x'"),
        ({"logit_bias": {"05": 1}}, ParameterError, "^logit_bias needs token ids"),
        ({"logit_bias": {"²": 1}}, ParameterError, "^logit_bias needs token ids"),
        ({"logit_bias": {"9" * 5000: 1}}, ParameterError, "^logit_bias needs token ids"),
        ({"logit_bias": {"49152": 1}}, ParameterError, "^logit_bias needs token ids"),
        ({"logit_bias": {"5": 101}}, ParameterError, r"^logit_bias\[5\] needs a number in \[-100, 100\], found 101"),
        ({"logit_bias": {"5": "1"}}, ParameterError, "^logit_bias.5 needs a finite number, found '1'"),
        ({"logit_bias": [1]}, ParameterError, "^logit_bias needs an object of token ids and numbers"),
        ({"outrider": {"window": 17}}, ParameterError, r"^outrider.window needs an integer in 0\.\.16, found 17"),
        ({"outrider": 3}, ParameterError, "^outrider needs an object, found 3"),
    ],
)
def test_refusals_name_the_field_what_it_needs_and_what_was_found(
    fields: dict[str, Any], error: type[OutriderError], message: str
) -> None:
    with pytest.raises(error, match=message):
        generation(**fields)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"x"', b"null", b"\xff\xfe{}", b'{"model": NaN}', b"[" * 50_000])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBodyError, match=r"^needs a (body in JSON|JSON object)"):
        parse_body(body, CompletionBody, LIMITS)


def test_a_chat_template_may_refuse_the_messages() -> None:
    tokenizer = type(TOKENIZER).from_pretrained(TOKENIZER.name_or_path)
    body = parse_body(json.dumps(CHAT).encode(), ChatBody, LIMITS)
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ParameterError, match=r"^messages needs what .* takes \(roles must alternate\), found 'user'"):
        read_prompts(body, tokenizer, LIMITS)
    tokenizer.chat_template = None
    with pytest.raises(UnsupportedFieldError, match="chat is not supported by this model"):
        read_prompts(body, tokenizer, LIMITS)
