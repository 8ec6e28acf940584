"""Drafts that are looked up in the text itself: the target's own tokens, in fewer steps where it repeats itself."""

import asyncio
import random
from dataclasses import replace

import pytest

from outrider.contracts.requests import FinishReason, GenerationChunk, GenerationRequest, SamplingParams
from outrider.rounds.lookup.ngram_drafts import LOOKUP
from outrider.selection.fixed import Fixed
from outrider.selection.modes import DRAFT, LOOKUP_DRAFT, SpeculationMode
from outrider.selection.tuning.speculation_tuner import SpeculationTuner
from tests.unit.serve_app.api.in_memory_service import (
    ENGINE_S,
    LONG_PROMPT,
    PARAMS,
    Service,
    drafter,
    request_for,
    tokens_of,
    truth_of,
)
from tests.unit.serve_app.coordination.in_memory import SAMPLED, EngineTransport
from tests.unit.serve_app.coordination.test_drafts_ahead import Ahead, slow
from tests.unit.virtual_clock import now_s, on_loop

# With these the tiny target says the same again and again.
REPETITIVE = SamplingParams(temperature=0.7, seed=3, logit_bias=((5, 100.0),))
REPEATING = LONG_PROMPT[:15] * 4


def serving(*drafters: EngineTransport, lookup_window: int = 8, **settings: object) -> Service:
    tuner = SpeculationTuner((LOOKUP_DRAFT if lookup_window else DRAFT,), 0.0)
    service = Service(*drafters, tuner=tuner, **settings)  # type: ignore[arg-type]
    speculation = replace(service.rules.speculation, lookup_window=lookup_window)
    service.rules = replace(service.rules, speculation=speculation)
    return service


def check(service: Service, request: GenerationRequest, chunks: list[GenerationChunk]) -> None:
    """Tokens, and that everything is counted once."""
    assert tokens_of(chunks) == truth_of(request)[: len(tokens_of(chunks))]
    stats, timings = chunks[-1].stats, service.timings
    assert len(timings) == stats.rounds
    assert sum(timing.committed_tokens for timing in timings) == len(tokens_of(chunks))
    assert sum(timing.drafted_tokens for timing in timings) == stats.drafted_tokens
    assert sum(timing.trimmed_tokens for timing in timings) == stats.trimmed_tokens
    assert sum(timing.accepted_tokens for timing in timings) == stats.accepted_tokens
    assert stats.inexact_rounds == 0


async def steps_for(request: GenerationRequest, lookup_window: int) -> int:
    """Steps of the verifier."""
    service = serving(lookup_window=lookup_window)
    chunks = await service.response(request)
    check(service, request, chunks)
    await service.idle()
    if lookup_window:
        assert chunks[-1].stats.accepted_tokens > 0
        assert dict(chunks[-1].stats.protocols).keys() == {LOOKUP}
    return sum(timing.follows or timing.verify_s > 0 for timing in service.timings)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("drafters", [0, 1])
@on_loop
async def test_the_stream_is_what_the_target_alone_says(params: SamplingParams, drafters: int) -> None:
    service = serving(*(drafter() for _ in range(drafters)))
    request = replace(request_for(params=params, window=None), max_tokens=100)
    chunks = await service.response(request)
    assert len(tokens_of(chunks)) == 100
    check(service, request, chunks)
    await service.idle()


@pytest.mark.parametrize("params", [replace(REPETITIVE, temperature=0.0), REPETITIVE], ids=["greedy", "sampled"])
@on_loop
async def test_a_text_that_repeats_itself_takes_fewer_steps(params: SamplingParams) -> None:
    request = replace(request_for(params=params, window=None), max_tokens=120)
    assert await steps_for(request, 8) < 0.7 * await steps_for(request, 0)


@pytest.mark.parametrize("wishes", [{"window": 0}, {"protocol": "token_ids", "window": 3}], ids=["none", "one"])
@on_loop
async def test_nothing_is_looked_up_for_who_fixes_what_is_drafted(wishes: dict[str, object]) -> None:
    service = serving(drafter())
    request = replace(request_for(params=REPETITIVE), max_tokens=60, **wishes)  # type: ignore[arg-type]
    chunks = await service.response(request)
    check(service, request, chunks)
    assert LOOKUP not in dict(chunks[-1].stats.protocols)
    await service.idle()


@pytest.mark.parametrize("blocks", [200, 40], ids=["roomy", "scarce"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@on_loop
async def test_concurrent_responses_stay_exact_whatever_is_lost(blocks: int, seed: int) -> None:
    rng = random.Random(100 * seed + blocks)
    kinds = [*PARAMS.values(), REPETITIVE]
    requests = [
        replace(
            request_for(f"g{i}", REPEATING[: rng.randint(1, 60)], params, rng.choice([0, 1, 3, 5, None])),
            max_tokens=rng.randint(8, 60),
        )
        for i, params in enumerate(kinds * 3)
    ]
    service = serving(drafter(), drafter(), blocks=blocks)
    service.verifier.dies_before = (9, 20, 41) if seed % 2 else ()
    service.verifier.answer_lost = (31,)
    service.verifier.forgets_before = (55,)
    responses = await asyncio.gather(*(service.response(request) for request in requests))
    for request, chunks in zip(requests, responses, strict=True):
        assert tokens_of(chunks) == truth_of(request), request
        assert chunks[-1].stats.inexact_rounds == 0
    assert any(timing.protocol == LOOKUP for timing in service.timings)
    await service.idle()


@pytest.mark.parametrize("params", [SAMPLED, REPETITIVE], ids=["sampled", "repetitive"])
@pytest.mark.parametrize("wait_s", [0.0, 3.5 * ENGINE_S, 20 * ENGINE_S])
@on_loop
async def test_nobody_waits_for_a_device_that_drafts_meanwhile(params: SamplingParams, wait_s: float) -> None:
    device = drafter()
    device.delay_s = lambda draft: wait_s if draft.token_ids else 0.0
    service = serving(device)
    service.rules = replace(service.rules, policy=Ahead())
    request = replace(request_for(params=params, window=None), max_tokens=150)
    chunks = await service.response(request)
    check(service, request, chunks)
    gaps = [timing.total_s for timing in service.timings[8:]]
    assert max(gaps) < 2.1 * ENGINE_S, "something is committed with every step"
    await service.idle()


@pytest.mark.parametrize("params", [SAMPLED, REPETITIVE], ids=["sampled", "repetitive"])
@on_loop
async def test_it_ends_inside_what_was_looked_up(params: SamplingParams) -> None:
    """With an end token, a stop string, or its last token."""
    request = replace(request_for(params=params, window=None), max_tokens=60)
    truth = truth_of(request)
    for end in [i for i in range(9, 40) if truth[i] not in truth[:i]] or [25]:
        service = serving(eos_token_ids=(truth[end],))
        chunks = await service.response(request)
        first = truth.index(truth[end])
        assert tokens_of(chunks) == truth[: first + 1]
        assert chunks[-1].finish_reason is FinishReason.STOP
        await service.idle()
        service = serving()
        assert tokens_of(await service.response(replace(request, max_tokens=end + 1))) == truth[: end + 1]
        await service.idle()


@pytest.mark.parametrize("params", [*PARAMS.values(), REPETITIVE], ids=[*PARAMS.keys(), "repetitive"])
@pytest.mark.parametrize("seed", range(3))
@on_loop
async def test_whenever_a_device_answers_the_stream_is_the_targets_own(params: SamplingParams, seed: int) -> None:
    """Looked up before a draft is ordered, while it is under way, while it is here and waits, and behind it."""
    service = serving(slow(seed))
    service.rules = replace(service.rules, policy=Ahead())
    request = replace(request_for(params=params, window=(2, 5, 6)[seed]), max_tokens=150)
    chunks = await service.response(request)
    assert len(tokens_of(chunks)) == 150
    check(service, request, chunks)
    assert sum(timing.total_s for timing in service.timings) <= now_s(), "no second is counted twice"
    await service.idle()


@pytest.mark.parametrize("seed", range(4))
@on_loop
async def test_many_at_once_beside_devices_stay_exact_whatever_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    requests = [
        replace(
            request_for(f"g{i}", REPEATING[: rng.randint(1, 60)], params, rng.choice([1, 3, 5, None])),
            max_tokens=rng.randint(20, 80),
            lookup=rng.choice([None, 0, 3, 20]),
        )
        for i, params in enumerate([*PARAMS.values(), REPETITIVE, REPETITIVE] * 2)
    ]
    service = serving(slow(seed), slow(seed + 50), blocks=rng.choice([40, 200]))
    service.rules = replace(service.rules, policy=Ahead())
    if seed % 2:
        service.verifier.dies_before, service.verifier.answer_lost = (9, 20, 41, 77), (31,)
        service.verifier.forgets_before = (55,)
    responses = await asyncio.gather(*(service.response(request) for request in requests))
    for request, chunks in zip(requests, responses, strict=True):
        assert tokens_of(chunks) == truth_of(request), request
        assert chunks[-1].stats.inexact_rounds == 0
        if request.lookup == 0:
            assert LOOKUP not in dict(chunks[-1].stats.protocols)
    used = {timing.protocol for timing in service.timings}
    assert used >= {LOOKUP, "token_ids"}
    await service.idle()


@on_loop
async def test_where_a_match_is_worth_more_no_device_is_asked() -> None:
    """It is asked for a first block or two, and then the text says all by itself."""
    request = replace(request_for(params=REPETITIVE, window=3), max_tokens=120)
    asked = []
    for lookup in (0, 8):
        device = drafter()
        device.delay_s = lambda draft: 4 * ENGINE_S if draft.token_ids else 0.0
        service = serving(device)
        service.rules = replace(service.rules, policy=Fixed())
        chunks = await service.response(replace(request, lookup=lookup))
        check(service, request, chunks)
        asked.append(sum(timing.protocol == "token_ids" for timing in service.timings))
        await service.idle()
    assert asked[1] < 0.5 * asked[0]


@pytest.mark.parametrize(("mode", "asked", "looks"), [(DRAFT, None, False), (DRAFT, 8, True), (LOOKUP_DRAFT, 0, False)])
@on_loop
async def test_a_request_says_it_whatever_the_mode(mode: SpeculationMode, asked: int | None, looks: bool) -> None:
    service = serving()
    service.services = replace(service.services, tuner=SpeculationTuner((mode,), 0.0))
    request = replace(request_for(params=REPETITIVE, window=None), max_tokens=60, lookup=asked)
    chunks = await service.response(request)
    check(service, request, chunks)
    assert (LOOKUP in dict(chunks[-1].stats.protocols)) is looks
    await service.idle()


@on_loop
async def test_only_ones_own_earlier_responses_are_looked_through() -> None:
    request = replace(request_for(params=replace(REPETITIVE, logit_bias=(), seed=11), window=None), max_tokens=60)
    steps = []
    for before, now in (("a", "a"), ("a", "b"), ("a", ""), ("", "")):
        service = serving(store_tokens=1000)
        await service.response(replace(request, generation="before", tenant=before))
        await service.idle()
        made = len(service.timings)
        chunks = await service.response(replace(request, tenant=now))
        assert tokens_of(chunks) == truth_of(request)
        steps.append(len(service.timings) - made)
        await service.idle()
    assert steps[0] < 0.5 * steps[1], "the same again"
    assert steps[1] == steps[2] == steps[3], "nothing of anybody else's"
