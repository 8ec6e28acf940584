"""System turns reach the model, wherever they are and whatever a family's chat template takes."""

import time
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from outrider.contracts.errors import ParameterError
from outrider.models.tokenizer import load_tokenizer
from serve_app.api.openai.bodies import ChatBody, ChatMessage
from serve_app.api.openai.prompts import chat_text
from tests.unit.serve_app.api.asking import MESSAGE, RESPONSE, post
from tests.unit.serve_app.api.reasoning.model_families import limits_for, tokenizer_of
from tests.unit.serve_app.api.text_service import LIMITS, TextService

_FOLDER = Path(__file__).parent / "reasoning" / "templates" / "system_turns"
TEMPLATES = {path.stem: path.read_text().rstrip("\n") for path in sorted(_FOLDER.glob("*.jinja"))}
KEEP_PLACE = ("qwen_25", "llama_3")  # a later turn stays where it is
TURNS = [("system", "Be brief."), ("developer", "Use tools."), ("user", "One?"), ("assistant", "1"), ("user", "Two?")]


def tokenizer_with(template: str) -> PreTrainedTokenizerBase:
    tokenizer = load_tokenizer("smollm2-135m-instruct")
    tokenizer.chat_template = template
    return tokenizer


def text_of(name: str, turns: list[tuple[str, str]], *, continues: bool = False) -> str:
    messages = [ChatMessage(role=role, content=content) for role, content in turns]  # type: ignore[arg-type]
    body, tokenizer = ChatBody(model="m", messages=messages), tokenizer_with(TEMPLATES[name])
    return chat_text(body, tokenizer, LIMITS, opens_answer=not continues, continues=continues)


@pytest.mark.parametrize("name", TEMPLATES)
def test_leading_system_turns_are_one(name: str) -> None:
    joined = [("system", "Be brief.\n\nUse tools."), *TURNS[2:]]
    assert text_of(name, TURNS) == text_of(name, joined)
    assert "Be brief.\n\nUse tools." in text_of(name, TURNS)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_later_system_turn_reaches_the_model_in_its_place_or_in_front(name: str) -> None:
    turns = [*TURNS[:4], ("system", "Now in French."), TURNS[4]]
    text = text_of(name, turns)
    assert text.count("Now in French.") == 1
    in_front = [("system", "Be brief.\n\nUse tools.\n\nNow in French."), *TURNS[2:]]
    assert (text == text_of(name, in_front)) is (name not in KEEP_PLACE)
    assert (text.index("One?") < text.index("Now in French.")) is (name in (*KEEP_PLACE, "mistral"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_system_turn_behind_the_user_becomes_the_first(name: str) -> None:
    text = text_of(name, [("user", "One?"), ("developer", "Be brief.")])
    assert text.count("Be brief.") == 1
    assert (text.index("One?") < text.index("Be brief.")) is (name in (*KEEP_PLACE, "gemma"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_system_turn_that_goes_on_stays_the_last(name: str) -> None:
    turns = [("system", "Be brief."), ("user", "One?"), ("assistant", "1"), ("system", "Now in")]
    if name in KEEP_PLACE:
        assert text_of(name, turns, continues=True).endswith("Now in")
    else:
        with pytest.raises(ParameterError, match="what the model's chat template takes"):
            text_of(name, turns, continues=True)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_turn_that_a_user_quotes_reaches_the_model_as_well(name: str) -> None:
    text = text_of(name, [("user", "May I say: Use French.?"), ("developer", "Use French.")])
    assert text.count("Use French.") == 2


def test_a_turn_that_is_left_out_in_front_as_well_is_refused() -> None:
    with pytest.raises(ParameterError, match="system turns that the model's chat template shows"):
        text_of("mistral", [("user", "One?"), ("assistant", "1"), ("system", "In French.")])


@pytest.mark.parametrize("name", KEEP_PLACE)
def test_many_turns_behind_a_long_text_cost_what_rendering_costs(name: str) -> None:
    began_s = time.thread_time()
    text = text_of(name, [("user", "a" * 3_800_000), *[("system", "ab")] * 500])
    assert text.count("aba") + text.count("ab<") == 500
    assert time.thread_time() - began_s < 3.0  # 6 s where each turn is looked for in all of the text


@pytest.mark.parametrize("name", ["mistral", "gemma"])
def test_what_is_refused_for_another_reason_stays_refused(name: str) -> None:
    turns = [("user", "a"), ("system", "b"), ("user", "c"), ("user", "d")]
    with pytest.raises(ParameterError, match="must alternate"):
        text_of(name, turns)


def test_the_second_rendering_has_a_deadline() -> None:
    slow = "{% for a in range(90000) %}{% for b in range(90000) %}{% set c = b %}{% endfor %}{% endfor %}"
    first = "{% if messages | length > 2 %}{{ raise_exception('no') }}{% endif %}"
    messages = [ChatMessage(role=role, content="a") for role in ("user", "system", "system")]
    with pytest.raises(ParameterError, match="processor time"):
        chat_text(ChatBody(model="m", messages=messages), tokenizer_with(first + slow), LIMITS)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/responses",
            RESPONSE
            | {
                "instructions": "Be brief.",
                "input": [{"role": "user", "content": "One?"}, {"role": "developer", "content": "In French."}],
            },
        ),
        (
            "/v1/messages",
            MESSAGE
            | {
                "system": "Be brief.",
                "messages": [{"role": "user", "content": "One?"}, {"role": "system", "content": "In French."}],
            },
        ),
    ],
)
def test_all_apis_take_them(path: str, body: dict[str, Any]) -> None:
    service = TextService(limits=limits_for("qwen3"), tokenizer=tokenizer_with(TEMPLATES["qwen_35"]))
    response = post(service, path, body)
    assert response.status_code == 200, response.text
    prompt = str(tokenizer_of("qwen3").decode(list(service.requests[0].prompt_ids)))
    assert "Be brief.\n\nIn French." in prompt
