"""Responses through round loop, batcher and drafter link over real engines in this process: exact and accounted for."""

import asyncio
import logging
import random
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch

from outrider.contracts.cost import LinearCostModel
from outrider.contracts.requests import FinishReason, GenerationChunk, SamplingParams, TokenOrigin
from outrider.contracts.slo import LedgerRecord, SloClass
from outrider.rounds.rules import RunGrant
from outrider.rounds.states import GenerationState
from serve_app import metrics
from serve_app.coordination.credit import Credit
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_drafter
from tests.unit.engines.reference import assert_same_logprobs, expected_logprobs
from tests.unit.serve_app.api.in_memory_service import (
    LENGTH,
    LONG_PROMPT,
    PARAMS,
    PENALISED,
    TOKENIZER,
    Service,
    drafter,
    request_for,
    tokens_of,
    truth_of,
)
from tests.unit.serve_app.coordination.in_memory import PROMPT, SAMPLED, EngineTransport, Gate
from tests.unit.virtual_clock import on_loop


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("window", [0, 1, 5])
@on_loop
async def test_the_stream_is_what_the_target_alone_says(params: SamplingParams, window: int) -> None:
    service, request = Service(drafter()), request_for(params=params, window=window)
    chunks = await service.response(request)
    assert tokens_of(chunks) == truth_of(request)
    assert "".join(chunk.text for chunk in chunks) == TOKENIZER.decode(tokens_of(chunks))
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + [FinishReason.LENGTH]
    stats = chunks[-1].stats
    assert [chunk.stats.rounds for chunk in chunks] == list(range(1, len(chunks) + 1))
    timings = service.timings
    assert (len(timings), sum(timing.committed_tokens for timing in timings)) == (stats.rounds, LENGTH)
    assert sum(timing.drafted_tokens for timing in timings) == stats.drafted_tokens
    assert sum(timing.accepted_tokens for timing in timings) == stats.accepted_tokens
    if window:
        assert 0 < stats.accepted_tokens <= stats.drafted_tokens
    else:
        assert (stats.drafted_tokens, service.fleet.excluded) == (0, []), "no drafter is asked for"
    assert service.generations["g"].state is GenerationState.FINISHED
    await service.idle()
    assert service.verifier.engine.usage().cached_blocks > 0


@pytest.mark.parametrize("window", [0, 2])
@on_loop
async def test_who_reads_slowly_gets_the_same(window: int) -> None:
    """The verifier is far ahead by the time its leave would be renewed."""
    service, request = Service(drafter()), replace(request_for(params=SAMPLED, window=window), max_tokens=60)
    tokens = list[int]()
    async with aclosing(service.chunks(request)) as chunks:
        async for chunk in chunks:
            tokens += chunk.token_ids
            await asyncio.sleep(0.3 if len(tokens) % 7 else 0.0)
    assert tuple(tokens) == tuple(truth_of(request))
    await service.idle()


@pytest.mark.parametrize("window", [0, 2])
@on_loop
async def test_a_response_that_nobody_reads_waits_and_breaks_no_promise(window: int) -> None:
    service, grant = Service(drafter()), RunGrant()
    slo = SloClass("fast", tokens_per_s=0.1)
    request = replace(request_for(window=window), max_tokens=100, ignore_eos=True, slo=slo)
    chunks, credit = list[GenerationChunk](), Credit(10)

    def put(chunk: GenerationChunk) -> None:
        chunks.append(chunk)
        credit.sent(len(chunk.token_ids))

    making, sent = asyncio.create_task(service.make(request, put, credit)), 0
    for _ in range(10):
        await asyncio.sleep(100.0)
        before, sent = sent, len(tokens_of(chunks))
        assert sent - before <= 10 + grant.without_drafter
        if making.done():
            break
        assert sent < len(truth_of(request))
        credit.read(sent)
    await making
    assert tokens_of(chunks) == truth_of(request)
    assert (chunks[-1].ledger or LedgerRecord()).times_behind == 0
    await service.idle()


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 6, 7, 13])
@on_loop
async def test_max_tokens_is_exact(max_tokens: int) -> None:
    service, request = Service(EngineTransport(torch_drafter(tiny_llama()))), request_for(prompt=LONG_PROMPT)
    chunks = await service.response(replace(request, max_tokens=max_tokens))
    assert tokens_of(chunks) == truth_of(request)[:max_tokens]
    assert chunks[-1].finish_reason is FinishReason.LENGTH


@on_loop
async def test_a_response_may_fill_the_context_and_no_more() -> None:
    service, request = Service(drafter(), blocks=10), replace(request_for(), max_tokens=100)
    chunks = await service.response(request)
    assert len(tokens_of(chunks)) == 40 - len(PROMPT)
    assert tokens_of(chunks) == truth_of(request)[: 40 - len(PROMPT)]
    assert chunks[-1].finish_reason is FinishReason.LENGTH
    await service.idle()


@on_loop
async def test_it_ends_with_an_end_token_or_a_stop_string() -> None:
    request = request_for(params=SAMPLED)
    truth = truth_of(request)
    end = next(i for i in range(9, LENGTH) if truth[i] not in truth[:i])
    chunks = await Service(drafter(), eos_token_ids=(truth[end],)).response(request)
    assert tokens_of(chunks) == truth[: end + 1]
    assert chunks[-1].finish_reason is FinishReason.STOP
    service = Service(drafter())
    chunks = await service.response(replace(request, stop=(f"w{truth[end]}",)))
    assert tokens_of(chunks) == truth[: end + 1]
    assert "".join(chunk.text for chunk in chunks) == f"{TOKENIZER.decode(truth[:end])} "
    assert chunks[-1].shown_tokens == end, "the stop string's token is not shown"
    assert chunks[-1].finish_reason is FinishReason.STOP
    await service.idle()


@pytest.mark.parametrize("window", [0, 5])
@on_loop
async def test_every_piece_of_text_names_who_proposed_it(window: int) -> None:
    """A token of the tiny tokenizer is a word."""
    chunks = await Service(drafter()).response(replace(request_for(window=window), max_tokens=80))
    words: Counter[TokenOrigin] = Counter()
    for chunk in chunks:
        assert all(span.text for span in chunk.spans)
        assert all(one.origin is not two.origin for one, two in pairwise(chunk.spans))
        of_chunk = [span.origin for span in chunk.spans for _ in span.text.split()]
        assert len(of_chunk) == len(chunk.token_ids)
        assert of_chunk[:-1] == [TokenOrigin.ACCEPTED] * (len(of_chunk) - 1), "only the last word is the verifier's"
        words.update(of_chunk)
    stats = chunks[-1].stats
    assert words[TokenOrigin.ACCEPTED] == stats.accepted_tokens
    if window:
        assert all(
            words[origin] > 0 for origin in TokenOrigin if origin not in (TokenOrigin.LOOKUP, TokenOrigin.OVERRIDE)
        )
    else:
        assert words == {TokenOrigin.VERIFIER: 80}


@on_loop
async def test_shown_tokens_count_those_whose_text_is_out() -> None:
    request = request_for(params=SAMPLED)
    truth = truth_of(request)
    stop = f"w{truth[6]} w{truth[7]} never"  # holds back a tail that might become it
    chunks = await Service(drafter()).response(replace(request, stop=(stop,)))
    tokens, text = 0, ""
    for chunk in chunks:
        tokens += len(chunk.token_ids)
        text += chunk.text
        assert TOKENIZER.decode(truth[: chunk.shown_tokens]) == text.rstrip()
    assert [chunk.shown_tokens for chunk in chunks] != list(accumulate(len(chunk.token_ids) for chunk in chunks))
    assert chunks[-1].shown_tokens == tokens == LENGTH


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("lost", [(), (0, 2, 6)], ids=["undisturbed", "verifier lost"])
@on_loop
async def test_log_probabilities_come_once_for_every_token(window: int, lost: tuple[int, ...]) -> None:
    service = Service(drafter())
    service.verifier.dies_after = lost
    request = replace(request_for(prompt=LONG_PROMPT, window=window), logprobs=2, prompt_logprobs=True)
    chunks = await service.response(request)
    tokens = tokens_of(chunks)
    assert tokens == truth_of(request)
    assert [[entry.token_id for entry in chunk.logprobs] for chunk in chunks] == [[*c.token_ids] for c in chunks]
    with torch.no_grad():
        logits = tiny_llama()(torch.tensor([[*LONG_PROMPT, *tokens]])).logits[0, :-1, :VOCAB]
    expected = expected_logprobs(logits, [*LONG_PROMPT[1:], *tokens], top=2)
    assert_same_logprobs([entry for chunk in chunks for entry in chunk.logprobs], expected[len(LONG_PROMPT) - 1 :])
    assert chunks[0].prompt_logprobs[0] is None
    assert_same_logprobs(chunks[0].prompt_logprobs[1:], expected[: len(LONG_PROMPT) - 1])
    assert not any(chunk.prompt_logprobs for chunk in chunks[1:])


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
@pytest.mark.parametrize("window", [0, 5])
@on_loop
async def test_min_tokens_puts_the_end_off(params: SamplingParams, window: int) -> None:
    request = replace(request_for(params=params, window=window), min_tokens=12)
    end = truth_of(request)[3]
    truth = truth_of(
        replace(request, params=replace(params, withheld_ids=(end,), withheld_until=len(PROMPT) + request.min_tokens))
    )
    assert end not in truth[:12]
    chunks = await Service(drafter(), eos_token_ids=(end,)).response(request)
    assert tokens_of(chunks) == truth[: truth.index(end) + 1 if end in truth else LENGTH]


@on_loop
async def test_a_response_is_logged_by_its_ids_and_numbers_alone(caplog: pytest.LogCaptureFixture) -> None:
    request = replace(request_for(window=0), request_id="r")
    with caplog.at_level(logging.INFO, logger="serve_app.coordination.generations.round_loop"):
        await Service().response(request)
    ids = {"request_id": "r", "generation": "g"}
    costs = {"rounds": LENGTH, "drafted": 0, "accepted": 0}
    assert [(record.message, vars(record)["fields"]) for record in caplog.records] == [
        ("generation_started", {**ids, "prompt_tokens": len(PROMPT), "resumed_tokens": 0}),
        ("generation_finished", {**ids, "tokens": LENGTH, **costs}),
    ]


@on_loop
async def test_a_stop_string_in_the_middle_of_a_block_drops_what_is_behind_it() -> None:
    request = replace(request_for(params=SAMPLED), logprobs=0)
    truth, behind = truth_of(request), 0
    words = [f"w{token_id}" for token_id in truth]
    for end in [i for i in range(4, 14) if not any(words[i] in word for word in words[:i])]:
        service = Service(EngineTransport(torch_drafter(tiny_llama())))
        chunks = await service.response(replace(request, stop=(words[end],)))
        assert tokens_of(chunks) == truth[: end + 1]
        assert [entry.token_id for chunk in chunks for entry in chunk.logprobs] == truth[: end + 1]
        assert (chunks[-1].finish_reason, chunks[-1].shown_tokens) == (FinishReason.STOP, end)
        behind += service.timings[-1].committed_tokens - len(chunks[-1].token_ids)
        assert chunks[-1].stats.accepted_tokens <= end + 1
    assert behind > 0


@on_loop
async def test_a_resumed_response_goes_on_where_it_was() -> None:
    request = request_for(params=PENALISED)
    truth = truth_of(request)
    service = Service(drafter())
    chunks = await service.response(replace(request, output_ids=tuple(truth[:9])))
    assert tokens_of(chunks) == truth[9:]
    assert service.sink.of(metrics.FIRST_TOKEN_PHASE_S, "prefill") == [], "its client has had a first token"


@on_loop
async def test_a_first_token_tells_its_prefill_and_what_the_cache_had_of_its_prompt() -> None:
    service = Service()
    for name in "ab":
        await service.response(request_for(name, LONG_PROMPT, window=0))
    sink = service.sink
    firsts = [service.timings[0], service.timings[len(service.timings) // 2]]
    assert sink.of(metrics.FIRST_TOKEN_PHASE_S, "prefill") == [first.verify_s for first in firsts]
    assert sink.of(metrics.FIRST_TOKEN_PHASE_S, "queue") == [first.queue_s for first in firsts]
    (none, hit), (everything, rest) = (sink.of(metrics.PREFIX_TOKENS, outcome) for outcome in ("hit", "miss"))
    assert (none, everything) == (0, len(LONG_PROMPT))
    assert hit > len(LONG_PROMPT) / 2
    assert hit + rest == len(LONG_PROMPT)


@pytest.mark.parametrize("blocks", [200, 40], ids=["roomy", "scarce"])
@on_loop
async def test_concurrent_responses_share_batches_and_stay_exact(blocks: int) -> None:
    rng = random.Random(blocks)
    requests = [
        replace(
            request_for(f"g{i}", LONG_PROMPT[: rng.randint(1, 60)], params, rng.choice([0, 1, 3, 5, None])),
            max_tokens=rng.randint(8, 20),
        )
        for i, params in enumerate([*PARAMS.values()] * 3)
    ]
    service = Service(drafter(), drafter(), blocks=blocks)
    service.verifier.dies_before = (9, 20)
    responses = await asyncio.gather(*(service.response(request) for request in requests))
    for request, chunks in zip(requests, responses, strict=True):
        assert tokens_of(chunks) == truth_of(request), request
    assert max(len(call.blocks) for call in service.verifier.calls) == 4
    await service.idle()


@on_loop
async def test_a_response_that_is_given_up_does_not_disturb_its_company() -> None:
    service = Service(drafter(), blocks=40)
    requests = [request_for(f"g{i}", LONG_PROMPT[: 20 + 9 * i], SAMPLED) for i in range(4)]
    service.verifier.gates[3] = gate = Gate()
    streams = [asyncio.create_task(service.response(request)) for request in requests]
    await gate.reached.wait()
    streams[0].cancel()
    gate.opened.set()
    results = await asyncio.gather(*streams, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    for request, chunks in zip(requests[1:], results[1:], strict=True):
        assert not isinstance(chunks, BaseException)
        assert tokens_of(chunks) == truth_of(request)
    await service.idle()


@pytest.mark.parametrize("name", ["greedy", "sampled"])
@on_loop
async def test_drafts_that_are_cut_change_no_token(name: str) -> None:
    """The drafter's KV goes back to what is committed, as behind a rejection."""
    params = {"greedy": SamplingParams(temperature=0.0), "sampled": SAMPLED}[name]
    service = Service(drafter(), cost_model=LinearCostModel(10.0, 0.0, 0.0, 1.0))
    requests = [request_for(generation, params=params, window=5) for generation in "abc"]
    responses = await asyncio.gather(*map(service.response, requests))
    assert [tokens_of(chunks) for chunks in responses] == [truth_of(request) for request in requests]
    stats = [chunks[-1].stats for chunks in responses]
    drafted = [timing for timing in service.timings if timing.drafted_tokens]
    trimmed = sum(one.trimmed_tokens for one in stats)
    assert 0 < trimmed == sum(timing.trimmed_tokens for timing in drafted)
    assert sum(one.drafted_tokens for one in stats) == sum(timing.drafted_tokens for timing in drafted)
    assert all(timing.trimmed_tokens + timing.accepted_tokens <= timing.drafted_tokens for timing in drafted)
