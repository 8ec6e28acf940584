import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OutriderError, ParameterError
from outrider.types import GenerationRequest, SamplingParams
from serve_app.errors import (
    MalformedBodyError,
    MissingFieldError,
    PromptTooLongError,
    UnknownFieldError,
    UnknownModelError,
    UnsupportedFieldError,
)
from serve_app.openai_api import ChatBody, CompletionBody, parse_body
from serve_app.openai_generation import prompt_tokens, to_generation
from tests.unit.serve_app.text_service import LIMITS, MODEL, TOKENIZER

SEED = 2**64 - 5
COMPLETION: dict[str, object] = {"model": MODEL, "prompt": "Once upon"}
CHAT: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}


def generation(**fields: object) -> GenerationRequest:
    body = (CHAT if "messages" in fields or "chat" in fields else COMPLETION) | fields
    body.pop("chat", None)
    kind: type[ChatBody | CompletionBody] = ChatBody if "messages" in body else CompletionBody
    parsed = parse_body(json.dumps(body).encode(), kind, LIMITS)
    ids = prompt_tokens(parsed, TOKENIZER, LIMITS)
    return to_generation(parsed, ids, LIMITS, generation="g", default_seed=SEED)


def test_a_bare_request_takes_openais_defaults() -> None:
    assert generation() == GenerationRequest(
        generation="g", prompt_ids=tuple(TOKENIZER.encode("Once upon")), params=SamplingParams(seed=SEED), max_tokens=16
    )


def test_every_parameter_arrives() -> None:
    params = SamplingParams(
        temperature=0.5,
        top_k=7,
        top_p=0.25,
        min_p=0.125,
        repetition_penalty=1.5,
        presence_penalty=-1.0,
        frequency_penalty=2,
        logit_bias=((7, -100.0), (50, 1.5)),
        seed=12,
    )
    asked = generation(
        temperature=0.5,
        top_k=7,
        top_p=0.25,
        min_p=0.125,
        repetition_penalty=1.5,
        presence_penalty=-1,
        frequency_penalty=2,
        logit_bias={"50": 1.5, "7": -100},
        seed=12,
        max_tokens=9,
        stop=["a", "b\n"],
        ignore_eos=True,
        outrider={"window": 3},
        user="someone",
    )
    assert asked == replace(generation(), params=params, max_tokens=9, stop=("a", "b\n"), ignore_eos=True, window=3)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_signed_seed_is_taken_as_its_64_bits(seed: int) -> None:
    taken = generation(seed=seed).params.seed
    assert taken.to_bytes(8, "big") == seed.to_bytes(8, "big", signed=True)


def test_more_top_k_than_tokens_keeps_them_all() -> None:
    assert generation(top_k=LIMITS.vocab_size - 1).params.top_k == LIMITS.vocab_size - 1
    assert generation(top_k=LIMITS.vocab_size).params.top_k == 0
    assert generation(top_k=10**300).params.top_k == 0


@pytest.mark.parametrize("prompt", ["Once upon", ["Once upon"], TOKENIZER.encode("Once upon")])
def test_a_prompt_is_a_text_or_tokens(prompt: object) -> None:
    assert generation(prompt=prompt).prompt_ids == tuple(TOKENIZER.encode("Once upon"))


@pytest.mark.parametrize("text", ["Hello", "two\nlines", "漢字 🦊", "spelt <|im_end|> special", " x ", ""])
def test_chats_are_tokenised_as_the_model_was_trained(text: str) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]
    expected = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert generation(messages=messages).prompt_ids == tuple(expected)


def test_parts_of_a_message_are_joined_by_newlines() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    in_parts = generation(messages=[{"role": "user", "content": parts}])
    assert in_parts == generation(messages=[{"role": "user", "content": "a\nb"}])


def test_a_chat_may_fill_the_context_and_a_completion_has_16_tokens() -> None:
    room = LIMITS.max_context_tokens - len(generation(chat=True).prompt_ids)
    assert generation(chat=True).max_tokens == min(room, LIMITS.max_output_tokens)
    long_prompt = [5] * (LIMITS.max_context_tokens - 2)
    assert generation(prompt=long_prompt).max_tokens == 2
    assert generation(chat=True, max_completion_tokens=4).max_tokens == 4
    assert generation(chat=True, max_completion_tokens=4, max_tokens=4).max_tokens == 4


@pytest.mark.parametrize(
    "neutral",
    [
        {"n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": None, "min_tokens": 0},
        {"chat": 1, "tools": [], "tool_choice": "none", "logprobs": False, "top_logprobs": 0, "modalities": ["text"]},
        {"chat": 1, "response_format": {"type": "text"}, "parallel_tool_calls": True, "store": False, "metadata": {}},
        {"temperature": None, "stop": None, "seed": None, "outrider": None, "stream_options": None, "max_tokens": None},
        {"outrider": {"window": None}, "stop": [], "logit_bias": {}, "audio": None, "service_tier": "auto"},
        {"messages": [{"role": "user", "content": "Hello", "name": None, "tool_calls": [], "refusal": None}]},
    ],
)
def test_values_that_ask_for_nothing_change_nothing(neutral: dict[str, object]) -> None:
    assert generation(**neutral) == (generation(chat=1) if {"chat", "messages"} & set(neutral) else generation())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"n": 2}, UnsupportedFieldError, "^n is not supported yet; send one request for each"),
        ({"n": True}, UnsupportedFieldError, "^n is not supported yet"),
        ({"logprobs": 0}, UnsupportedFieldError, "^logprobs is not supported yet"),
        ({"echo": True}, UnsupportedFieldError, "^echo is not supported yet"),
        ({"best_of": 3}, UnsupportedFieldError, "^best_of is not supported yet"),
        ({"suffix": "x"}, UnsupportedFieldError, "^suffix is not supported yet"),
        ({"min_tokens": 3}, UnsupportedFieldError, "^min_tokens is not supported yet; use ignore_eos"),
        (
            {"prompt": ["a", "b"]},
            UnsupportedFieldError,
            "several texts is not supported yet; send one request for each",
        ),
        ({"chat": 1, "logprobs": True}, UnsupportedFieldError, "^logprobs is not supported yet"),
        ({"chat": 1, "top_logprobs": 2}, UnsupportedFieldError, "^top_logprobs is not supported yet"),
        ({"chat": 1, "tools": [{}]}, UnsupportedFieldError, "^tools is not supported yet"),
        ({"chat": 1, "tool_choice": "required"}, UnsupportedFieldError, "^tool_choice is not supported yet"),
        ({"chat": 1, "functions": [{}]}, UnsupportedFieldError, "^functions is not supported yet"),
        ({"chat": 1, "prediction": {}}, UnsupportedFieldError, "^prediction is not supported yet"),
        ({"chat": 1, "modalities": ["text", "audio"]}, UnsupportedFieldError, "^modalities is not supported yet"),
        ({"response_format": {"type": "json_object"}}, UnsupportedFieldError, "^response_format is not supported yet"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            UnsupportedFieldError,
            "stream_options.incl",
        ),
        (
            {"messages": [{"role": "user", "content": "a", "name": "Bo"}]},
            UnsupportedFieldError,
            r"^messages\[0\].name is not supported yet; put the name into the content",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            UnsupportedFieldError,
            r"^messages\[0\].content\[0\].type 'image_url' is not supported yet",
        ),
        (
            {"messages": [{"role": "tool", "content": "a"}]},
            ParameterError,
            r"^messages\[0\].role needs one of 'system', 'user', .* \(others are not supported yet\), found 'tool'",
        ),
        ({"temprature": 1}, UnknownFieldError, "^temprature is no known field; did you mean temperature"),
        ({"messages2": 1}, UnknownFieldError, "^messages2 is no known field; known here: model, stream"),
        ({"outrider": {"k": 1}}, UnknownFieldError, "^outrider.k is no known field; known here: window"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "tone": 1}]}]},
            UnknownFieldError,
            r"^messages\[0\].content\[0\].tone is no known field",
        ),
        ({"model": None}, MissingFieldError, "^model is missing"),
        ({"prompt": None}, MissingFieldError, "^prompt is missing; it needs a text, or a list of token ids"),
        ({"messages": [{"role": "user"}]}, MissingFieldError, r"^messages\[0\].content is missing"),
        ({"model": "gpt-5"}, UnknownModelError, "^model needs one of: smollm2; found 'gpt-5'"),
        ({"temperature": "hot"}, ParameterError, "^temperature needs a finite number, found 'hot'"),
        ({"temperature": True}, ParameterError, "^temperature needs a finite number, found True"),
        ({"temperature": 2.5}, ParameterError, r"^temperature needs a number in \[0, 2\], found 2.5"),
        ({"top_p": 0}, ParameterError, r"^top_p needs a number in \(0, 1\], found 0"),
        ({"top_k": -1}, ParameterError, "^top_k needs an integer >= 0"),
        ({"stream": "yes"}, ParameterError, "^stream needs true or false, found 'yes'"),
        ({"stream_options": {"include_usage": True}}, ParameterError, "^stream_options needs stream: true, found"),
        ({"max_tokens": 0}, ParameterError, r"^max_tokens needs an integer in 1\.\.100, found 0"),
        ({"max_tokens": 16.0}, ParameterError, "^max_tokens needs an integer, found 16.0"),
        (
            {"chat": 1, "max_completion_tokens": 101},
            ParameterError,
            r"^max_completion_tokens needs an integer in 1\.\.",
        ),
        (
            {"chat": 1, "max_completion_tokens": 4, "max_tokens": 5},
            ParameterError,
            "^max_tokens needs to equal max_comp",
        ),
        ({"prompt": [5] * 200, "max_tokens": 57}, PromptTooLongError, "^max_tokens needs at most 56 .*found 57"),
        ({"prompt": [5] * 256}, PromptTooLongError, "^prompt needs at most 255 tokens .*, found 256 tokens"),
        (
            {"prompt": "a b " * 200},
            PromptTooLongError,
            "^prompt needs at most 255 tokens .*, found 40[01] tokens",
        ),
        ({"prompt": "a" * 30_000}, PromptTooLongError, "^prompt needs at most 20000 characters, found 30000"),
        ({"prompt": ""}, ParameterError, "^prompt needs at least one token"),
        ({"prompt": []}, ParameterError, "^prompt needs at least one token"),
        ({"prompt": {"a": 1}}, ParameterError, "^prompt needs a text, or a list of token ids, found {'a': 1}"),
        ({"prompt": [[1, 2]]}, ParameterError, "^prompt needs a text, or a list of token ids"),
        ({"prompt": [1, "a"]}, ParameterError, "^prompt needs a text, or a list of token ids"),
        ({"prompt": [1, 49152]}, ParameterError, r"^prompt\[1\] needs a token id in 0\.\.49151, found 49152"),
        ({"prompt": [-1]}, ParameterError, r"^prompt\[0\] needs a token id"),
        ({"prompt": [2**70]}, ParameterError, r"^prompt\[0\] needs a token id"),
        ({"messages": []}, ParameterError, "^messages needs a list of at least one message"),
        ({"messages": "Hello"}, ParameterError, "^messages needs a list of at least one message, found 'Hello'"),
        ({"messages": ["Hello"]}, ParameterError, r"^messages\[0\] needs an object, found 'Hello'"),
        ({"messages": [{"role": "user", "content": 5}]}, ParameterError, r"^messages\[0\].content needs a text, or a"),
        ({"stop": ""}, ParameterError, "^stop needs a text or a list of up to 16 texts"),
        ({"stop": ["a", ""]}, ParameterError, "^stop needs a text or a list of up to 16 texts"),
        ({"stop": ["a"] * 17}, ParameterError, "^stop needs a text or a list of up to 16 texts"),
        ({"seed": 2**63}, ParameterError, "^seed needs an integer in -9223372036854775808..9223372036854775807, found"),
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
    fields: dict[str, object], error: type[OutriderError], message: str
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
        prompt_tokens(body, tokenizer, LIMITS)
    tokenizer.chat_template = None
    with pytest.raises(UnsupportedFieldError, match="chat is not supported by this model"):
        prompt_tokens(body, tokenizer, LIMITS)
