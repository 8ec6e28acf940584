from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.unit.serve_app.api.asking import ALL_TEXT, CHAT, COMPLETION, events_of, post
from tests.unit.serve_app.api.text_service import ALTERNATIVE_ID, LIMITS, TEXT, TOKENIZER, TextService

IDS = TOKENIZER.encode(TEXT)[:40]
PROMPT_IDS = TOKENIZER.encode("Once upon")
ALTERNATIVE = str(TOKENIZER.decode([ALTERNATIVE_ID]))
SCORES = [-token_id / 1000 for token_id in IDS]


def choices_of(path: str, body: dict[str, Any], *, stream: bool) -> list[dict[str, Any]]:
    """The only choice, whole or in pieces."""
    response = post(TextService(), path, body | {"stream": stream})
    events = events_of(response)[:-1] if stream else [response.json()]
    return [event["choices"][0] for event in events]


def listed(choices: Sequence[dict[str, Any]], field: str) -> list[Any]:
    """One list of the pieces' log-probabilities, joined."""
    return [item for choice in choices if choice["logprobs"] for item in choice["logprobs"][field]]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_tells_of_every_token(*, stream: bool) -> None:
    body = CHAT | {"logprobs": True, "top_logprobs": 2}
    entries = listed(choices_of("/v1/chat/completions", body, stream=stream), "content")
    assert [entry["logprob"] for entry in entries] == SCORES
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode(errors="replace") == ALL_TEXT
    assert entries[1] == {
        "token": " quick",
        "logprob": SCORES[1],
        "bytes": list(b" quick"),
        "top_logprobs": [
            {"token": " quick", "logprob": SCORES[1], "bytes": list(b" quick")},
            {"token": ALTERNATIVE, "logprob": -100.0, "bytes": list(ALTERNATIVE.encode())},
        ],
    }
    assert [entry["token"] for entry in entries[2:4]] == [r"bytes:\x20\xf0\x9f", r"bytes:\xa6"]


def test_a_chat_without_alternatives_has_none() -> None:
    (choice,) = choices_of("/v1/chat/completions", CHAT | {"logprobs": True}, stream=False)
    assert choice["logprobs"]["refusal"] is None
    assert all(entry["top_logprobs"] == [] for entry in choice["logprobs"]["content"])
    assert choices_of("/v1/chat/completions", CHAT, stream=False)[0]["logprobs"] is None


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_tells_of_every_token(*, stream: bool) -> None:
    choices = choices_of("/v1/completions", COMPLETION | {"logprobs": 2}, stream=stream)
    assert listed(choices, "token_logprobs") == SCORES
    assert listed(choices, "tokens")[:3] == ["The", " quick", r"bytes:\x20\xf0\x9f"]
    assert listed(choices, "top_logprobs")[1] == {" quick": SCORES[1], ALTERNATIVE: -100.0}
    offsets = listed(choices, "text_offset")
    assert offsets == sorted(offsets)
    assert offsets[:7] == [0, 3, 9, 10, 10, 11, 17]
    assert all(
        ALL_TEXT[offset:].startswith(name) for offset, name in zip(offsets[5:7], [" jumps", " over"], strict=True)
    )


def test_no_alternatives_leaves_the_token_itself() -> None:
    (choice,) = choices_of("/v1/completions", COMPLETION | {"logprobs": 0}, stream=False)
    assert choice["logprobs"]["top_logprobs"][:2] == [{"The": SCORES[0]}, {" quick": SCORES[1]}]
    assert choices_of("/v1/completions", COMPLETION, stream=False)[0]["logprobs"] is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        (" jumps", ["The", " quick", r"bytes:\x20\xf0\x9f", r"bytes:\xa6", r"bytes:\x8a"]),
        ("quick", ["The"]),  # half of the token that has it is shown, but not all
        ("The", []),
    ],
)
def test_tokens_that_a_stop_string_swallowed_are_not_told_of(stop: str, shown: list[str], *, stream: bool) -> None:
    choices = choices_of("/v1/completions", COMPLETION | {"logprobs": 0, "stop": stop}, stream=stream)
    assert listed(choices, "tokens") == shown
    assert choices[-1]["finish_reason"] == "stop"


def test_a_streamed_token_is_told_of_when_all_its_text_is_shown() -> None:
    body = COMPLETION | {"logprobs": 0, "stop": ["jumps over it", "never"], "max_tokens": 9}
    *pieces, last = choices_of("/v1/completions", body, stream=True)
    assert last["logprobs"] is None
    assert [(piece["text"], piece["logprobs"] and piece["logprobs"]["tokens"]) for piece in pieces] == [
        ("The quick ", ["The", " quick"]),
        ("🦊 ", [r"bytes:\x20\xf0\x9f", r"bytes:\xa6", r"bytes:\x8a"]),
        ("jumps over \ufffd", [" jumps", " over", r"bytes:\x20\xe6", r"bytes:\xbc"]),
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_tells_of_the_prompt_as_well(*, stream: bool) -> None:
    choices = choices_of("/v1/completions", COMPLETION | {"logprobs": 1, "echo": True}, stream=stream)
    assert listed(choices, "token_logprobs") == [None, -PROMPT_IDS[1] / 1000, *SCORES]
    assert listed(choices, "top_logprobs")[:2] == [None, {" upon": -PROMPT_IDS[1] / 1000}]
    assert listed(choices, "tokens")[:4] == ["Once", " upon", "The", " quick"]
    assert listed(choices, "text_offset")[:4] == [0, 4, 9, 12]


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_alone_scores_the_prompt(*, stream: bool) -> None:
    body = COMPLETION | {"logprobs": 0, "echo": True, "max_tokens": 0, "prompt": [2, *PROMPT_IDS]}
    choices = choices_of("/v1/completions", body, stream=stream)
    assert listed(choices, "tokens") == ["<|im_end|>", "Once", " upon"]
    assert listed(choices, "text_offset") == [0, 10, 14]


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_prompt_is_scored_as_a_short_one_is(*, stream: bool) -> None:
    """In a thread of its own."""
    ids = [PROMPT_IDS[i % 2] for i in range(400)]
    limits = replace(LIMITS, max_context_tokens=1000)
    response = post(
        TextService(limits=limits),
        "/v1/completions",
        COMPLETION | {"logprobs": 1, "echo": True, "prompt": ids, "stream": stream},
    )
    events = events_of(response)[:-1] if stream else [response.json()]
    choices = [event["choices"][0] for event in events]
    assert listed(choices, "token_logprobs") == [None, *(-i / 1000 for i in ids[1:]), *SCORES]
    offsets = listed(choices, "text_offset")
    assert offsets == sorted(offsets)


def test_what_cannot_occur_is_written_as_a_number() -> None:
    """JSON has no infinity."""
    token_id = len(TOKENIZER) - 1
    impossible = TextService(floor=float("-inf"))
    body = CHAT | {"logprobs": True, "top_logprobs": 2}
    (choice,) = post(impossible, "/v1/chat/completions", body).json()["choices"]
    assert [top["logprob"] for top in choice["logprobs"]["content"][0]["top_logprobs"]] == [SCORES[0], -9999.0]
    completion = post(impossible, "/v1/completions", COMPLETION | {"prompt": [token_id], "logprobs": 2}).json()
    assert completion["choices"][0]["logprobs"]["top_logprobs"][0] == {"The": SCORES[0], ALTERNATIVE: -9999.0}


def test_openais_models_take_them() -> None:
    chat = CHAT | {"logprobs": True, "top_logprobs": 3}
    whole = ChatCompletion.model_validate(post(TextService(), "/v1/chat/completions", chat).json(), strict=True)
    assert whole.choices[0].logprobs is not None
    for event in events_of(post(TextService(), "/v1/chat/completions", chat | {"stream": True}))[:-1]:
        ChatCompletionChunk.model_validate(event)
    completion = COMPLETION | {"logprobs": 3}
    Completion.model_validate(post(TextService(), "/v1/completions", completion).json())
