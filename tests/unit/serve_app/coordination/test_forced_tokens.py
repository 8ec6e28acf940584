"""Tokens that a grammar leaves no choice about are taken without a drafter, many in a round, exactly."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from outrider.contracts.requests import GenerationChunk, GenerationRequest, Grammar, SamplingParams, TokenLogprobs
from outrider.grammar.texts import of_json_schema, of_lark
from serve_app.api.openai.tools.formats.base import NO_MARKS, Tool
from serve_app.api.openai.tools.formats.registry import FORMS
from tests.chaos.constrained import WAYS
from tests.unit.engines.toy_grammar import END, text_of
from tests.unit.serve_app.api.in_memory_service import drafter, request_for, tokens_of
from tests.unit.serve_app.coordination.test_prompt_lookup import serving
from tests.unit.virtual_clock import VirtualLoop

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"the_customers_name": {"enum": ["Bob", "Eve"]}, "ordered_items": {"type": "boolean"}},
    "required": ["the_customers_name", "ordered_items"],
    "additionalProperties": False,
}
OBJECT = Grammar(of_json_schema(SCHEMA, flexible=False))
ARGUMENTS = {**SCHEMA, "properties": {"to": {"enum": ["Bob", "Eve"]}}, "required": ["to"]}
TOOL = Tool("order", ARGUMENTS, {})
SPELLED = {"\\n": "|", "[TOOL_CALLS]": "[calls]", "[ARGS]": "[args]"}  # what the tiny models' tokens cannot spell
BY_SEED = ("the target alone", "lookups", "chains by token_ids", "trees of token ids")  # others keep the distribution


def calls_in(form: str) -> Grammar:
    rules = "\n".join(["start: calls", *FORMS[form].rules([TOOL], NO_MARKS, several=False)])
    for text, spelled in SPELLED.items():
        rules = rules.replace(text, spelled)
    return Grammar(of_lark(rules))


def request_of(grammar: Grammar, temperature: float, **fields: Any) -> GenerationRequest:
    params = SamplingParams(temperature=temperature, seed=3, grammar=grammar)
    return replace(request_for("g0", tuple(range(5, 25)), params), max_tokens=160, logprobs=2, **fields)


def answers(*requests: GenerationRequest, lookup_window: int = 8, drafters: int = 2) -> list[list[GenerationChunk]]:
    async def made() -> list[list[GenerationChunk]]:
        service = serving(
            *(drafter() for _ in range(drafters)), lookup_window=lookup_window, blocks=400, eos_token_ids=(END,)
        )
        named = [replace(request, generation=f"g{i}") for i, request in enumerate(requests)]
        chunks = await asyncio.gather(*map(service.response, named))
        await service.idle()
        return list(chunks)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(made())


def scores(chunks: list[GenerationChunk]) -> list[float]:
    tops: list[TokenLogprobs] = [each for chunk in chunks for each in chunk.logprobs]
    return [score for each in tops for score in (each.logprob, *(top for _, top in each.top))]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_few_rounds_make_what_many_do(temperature: float) -> None:
    alone, forced = answers(request_of(OBJECT, temperature, window=0), request_of(OBJECT, temperature), drafters=0)
    assert tokens_of(forced) == tokens_of(alone)
    assert scores(forced) == pytest.approx(scores(alone), abs=1e-4)
    assert alone[-1].stats.rounds == len(tokens_of(alone)) > 40
    assert forced[-1].stats.rounds <= 8
    assert forced[-1].stats.accepted_tokens == forced[-1].stats.drafted_tokens > 30


@pytest.mark.parametrize(("lookup_window", "fields"), [(0, {}), (8, {"lookup": 0})])
def test_who_wants_no_lookup_has_none_of_them(lookup_window: int, fields: dict[str, int]) -> None:
    (chunks,) = answers(request_of(OBJECT, 0.0, **fields), lookup_window=lookup_window, drafters=0)
    assert chunks[-1].stats.rounds == len(tokens_of(chunks))


def test_they_do_not_reach_beyond_the_responses_length() -> None:
    for length in (1, 2, 5, 11, 12, 30):
        request = replace(request_of(OBJECT, 1.0), max_tokens=length)
        cut, alone = answers(request, replace(request, window=0), drafters=0)
        assert tokens_of(cut) == tokens_of(alone)
        assert len(tokens_of(cut)) == length


@pytest.mark.parametrize(
    ("form", "temperature"),
    [
        *((form, 1.0) for form in FORMS),
        *(pytest.param(form, 0.0, marks=[pytest.mark.long] * (form != "hermes")) for form in FORMS),
    ],
)
def test_a_call_that_must_be_made_is_the_same_however_it_is_drafted(form: str, temperature: float) -> None:
    """In each form of calls, by every protocol and source of drafts."""
    ways = {way: fields for way, fields in WAYS.items() if not temperature or way in BY_SEED}
    alone, *others = answers(*(request_of(calls_in(form), temperature, **fields) for fields in ways.values()))
    said = text_of(tokens_of(alone))
    assert "order" in said
    for way, chunks in zip(list(ways)[1:], others, strict=True):
        assert tokens_of(chunks) == tokens_of(alone), way
        assert chunks[-1].stats.drafted_tokens > 0, way
