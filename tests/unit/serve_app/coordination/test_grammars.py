"""Responses that a grammar binds, by a whole coordinator over real engines: the target's own under the same masks.

Devices are real and know nothing of the grammar: whatever they draft that it forbids is rejected.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from outrider.contracts.errors import GrammarError
from outrider.contracts.requests import (
    FinishReason,
    GenerationChunk,
    GenerationRequest,
    Grammar,
    ProtocolName,
    SamplingParams,
)
from outrider.contracts.slo import SloClass
from tests.unit.engines.toy_grammar import END, SENTENCES, THINK_END, TOY, text_of
from tests.unit.serve_app.api.in_memory_service import LONG_PROMPT, Service, drafter, request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.in_memory import FIRST, PROMPT
from tests.unit.serve_app.coordination.test_prompt_lookup import serving
from tests.unit.virtual_clock import on_loop

LATER = replace(TOY, begins_after=THINK_END)
PARAMS = {
    "greedy": SamplingParams(temperature=0.0, grammar=TOY),
    "sampled": SamplingParams(temperature=0.9, seed=3, grammar=TOY),
    "hot": SamplingParams(temperature=2.0, seed=7, grammar=TOY),
    "penalised": SamplingParams(temperature=1.0, seed=4, repetition_penalty=1.2, frequency_penalty=0.5, grammar=TOY),
    "reasoning": SamplingParams(temperature=1.5, seed=3, logit_bias=((THINK_END, 9.0),), grammar=LATER),
}
each_params = pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
RATIO: list[ProtocolName] = ["dsd", "tslt", "tslt_tree", "dssd", "dssd_candidates"]


def bound(*drafters: object, blocks: int = 200, **settings: object) -> Service:
    """A service whose responses end as the grammar's do."""
    return Service(*drafters, blocks=blocks, eos_token_ids=(END,), **settings)  # type: ignore[arg-type]


def ended(tokens: Sequence[int]) -> list[int]:
    """Up to the first end."""
    tokens = list(tokens)
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


def assert_a_sentence(tokens: Sequence[int]) -> None:
    """One that is whole."""
    assert tokens[-1] == END
    said = tokens[tokens.index(THINK_END) + 1 :] if THINK_END in tokens else tokens
    assert text_of(said) in SENTENCES


def assert_the_targets_own(request: GenerationRequest, chunks: Sequence[GenerationChunk]) -> None:
    truth = ended(truth_of(request))
    assert tokens_of(chunks) == truth[len(request.output_ids) :]
    if truth[-1] == END:
        assert_a_sentence(truth)
    assert chunks[-1].finish_reason is (FinishReason.STOP if truth[-1] == END else FinishReason.LENGTH)
    assert chunks[-1].stats.inexact_rounds == 0


@each_params
@pytest.mark.parametrize("window", [0, 1, 5])
@on_loop
async def test_the_stream_is_what_the_target_alone_says(params: SamplingParams, window: int) -> None:
    service, request = bound(drafter()), request_for(params=params, window=window)
    chunks = await service.response(request)
    assert_the_targets_own(request, chunks)
    assert chunks[-1].finish_reason is FinishReason.STOP
    if window:
        assert chunks[-1].stats.drafted_tokens > 0
        assert [opening.params.grammar for opening in service.fleet.transports[FIRST].opened] == [None]
    await service.idle()


@pytest.mark.parametrize("shape", [{"rows": 6}, {"expansion": (2, 2, 1)}], ids=str)
@each_params
@on_loop
async def test_trees_fork_the_grammar(params: SamplingParams, shape: dict[str, object]) -> None:
    service = bound(drafter())
    request = replace(request_for(params=params, window=3), protocol="token_ids", **shape)  # type: ignore[arg-type]
    assert_the_targets_own(request, await service.response(request))
    await service.idle()


@each_params
@pytest.mark.parametrize("drafters", [0, 1])
@on_loop
async def test_what_is_looked_up_is_held_to_it(params: SamplingParams, drafters: int) -> None:
    service = serving(*(drafter() for _ in range(drafters)), eos_token_ids=(END,))
    request = replace(request_for(prompt=LONG_PROMPT[:15] * 4, params=params), lookup=8)
    assert_the_targets_own(request, await service.response(request))
    await service.idle()


@pytest.mark.parametrize("trouble", ["dies_before", "dies_after", "answer_lost", "forgets_before"])
@each_params
@on_loop
async def test_a_verifier_that_is_lost_begins_the_grammar_anew(params: SamplingParams, trouble: str) -> None:
    service, request = bound(drafter()), request_for(prompt=LONG_PROMPT, params=params)
    setattr(service.verifier, trouble, (2, 5, 6, 7))
    assert_the_targets_own(request, await service.response(request))
    assert sum(len(call.openings) for call in service.verifier.calls) > 1
    await service.idle()


@each_params
@on_loop
async def test_it_is_resumed_behind_any_token(params: SamplingParams) -> None:
    """As the record has it when a coordinator is lost: committed tokens, and nothing of where the grammar was."""
    request = request_for(params=params)
    for sent in range(1, len(ended(truth_of(request)))):
        service = bound(drafter())
        resumed = replace(request, generation=f"g.{sent}", output_ids=tuple(truth_of(request)[:sent]))
        assert_the_targets_own(resumed, await service.response(resumed))
        await service.idle()


@pytest.mark.parametrize("blocks", [200, 40], ids=["roomy", "scarce"])
@on_loop
async def test_choices_of_all_kinds_beside_one_another(blocks: int) -> None:
    """Several choices of each request, which evict each other where KV is scarce; the verifier is lost twice."""
    slow = SloClass("slow", tokens_per_s=0.5)
    requests = [
        replace(
            request_for(f"{name}.{choice}", LONG_PROMPT[: 20 + 7 * choice], params, window),
            params=replace(params, seed=params.seed + choice),
            slo=slow,
        )
        for (name, params), window in zip(PARAMS.items(), (0, 1, 3, 5, None), strict=True)
        for choice in range(3)
    ]
    free = [request_for(f"free.{i}", LONG_PROMPT, SamplingParams(seed=i), 3) for i in range(2)]
    service = bound(drafter(), drafter(), blocks=blocks)
    service.verifier.dies_before = (9, 20)
    responses = await asyncio.gather(*map(service.response, [*requests, *free]))
    for request, chunks in zip(requests, responses, strict=False):
        assert_the_targets_own(request, chunks)
    for request, chunks in zip(free, responses[len(requests) :], strict=True):
        assert tokens_of(chunks) == ended(truth_of(request))
    await service.idle()


@pytest.mark.parametrize("window", [0, 5])
@on_loop
async def test_a_stop_string_ends_it_before_the_grammar_does(window: int) -> None:
    request = request_for(params=PARAMS["sampled"], window=window)
    truth = truth_of(request)
    service = bound(drafter())
    chunks = await service.response(replace(request, stop=(f"w{truth[2]}",)))
    assert tokens_of(chunks) == truth[:3]
    assert chunks[-1].finish_reason is FinishReason.STOP
    await service.idle()


@pytest.mark.parametrize("protocol", RATIO)
@on_loop
async def test_what_ratio_rules_commit_is_a_sentence(protocol: ProtocolName) -> None:
    """Corrections that devices draw among it: the row that they are sent is the masked one."""
    for seed in range(6):
        service = bound(drafter())
        request = request_for(params=replace(PARAMS["hot"], seed=seed), window=3)
        request = replace(request, protocol=protocol, reproducible=False)
        if protocol == "tslt_tree":
            request = replace(request, expansion=(2, 2, 1))
        chunks = await service.response(request)
        assert chunks[-1].finish_reason is FinishReason.STOP
        assert_a_sentence(tokens_of(chunks))
        assert chunks[-1].stats.inexact_rounds == 0
        assert service.fleet.faults == {}
        await service.idle()


@on_loop
async def test_a_grammar_that_leads_nowhere_fails_its_own_response_alone() -> None:
    service = bound(drafter())
    lost = replace(request_for("lost"), params=SamplingParams(grammar=Grammar("start: nothing")))
    found = request_for("found", PROMPT, PARAMS["greedy"])
    failed, chunks = await asyncio.gather(*map(service.response, [lost, found]), return_exceptions=True)
    assert isinstance(failed, GrammarError)
    assert not isinstance(chunks, BaseException)
    assert_the_targets_own(found, chunks)
    await service.idle()
