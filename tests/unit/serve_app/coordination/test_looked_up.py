"""Drafts that are looked up in the text itself: the target's own tokens, in fewer steps where it repeats itself."""

import asyncio
import random
from dataclasses import replace

import pytest

from outrider.contracts.requests import FinishReason, GenerationChunk, GenerationRequest, SamplingParams
from outrider.rounds.looked_up import LOOKUP
from outrider.selection.arms import DRAFT, LOOKUP_DRAFT
from outrider.selection.regime import Regime, RegimeSettings
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
from tests.unit.serve_app.coordination.test_drafts_ahead import Ahead
from tests.unit.virtual_clock import on_loop

# With these the tiny target says the same again and again.
REPETITIVE = SamplingParams(temperature=0.7, seed=3, logit_bias=((5, 100.0),))


def serving(*drafters: EngineTransport, lookup_window: int = 8, **settings: object) -> Service:
    regime = Regime((LOOKUP_DRAFT if lookup_window else DRAFT,), RegimeSettings(), 0.0)
    service = Service(*drafters, regime=regime, **settings)  # type: ignore[arg-type]
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
@pytest.mark.parametrize("seed", range(3))
@on_loop
async def test_concurrent_responses_stay_exact_whatever_is_lost(blocks: int, seed: int) -> None:
    rng = random.Random(100 * seed + blocks)
    kinds = [*PARAMS.values(), REPETITIVE]
    requests = [
        replace(
            request_for(f"g{i}", LONG_PROMPT[: rng.randint(1, 60)], params, rng.choice([0, 1, 3, 5, None])),
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
