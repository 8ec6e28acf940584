"""Responses over real engines in this process that are lost, talk nonsense, or whose client leaves: exact, or ended."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from outrider.contracts.errors import ContextTooLongError, DrafterLostError, RequestFailedError
from outrider.rounds.states import GenerationState
from serve_app import metrics
from tests.unit.serve_app.api.in_memory_service import LONG_PROMPT, Service, drafter, request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.in_memory import FIRST, NONSENSE, SAMPLED, Gate, until
from tests.unit.virtual_clock import on_loop


@pytest.mark.parametrize("trouble", ["dies_before", "dies_after", "answer_lost", "forgets_before"])
@pytest.mark.parametrize("calls", [(0,), (2,), (1, 2, 3, 6, 7)], ids=str)
@on_loop
async def test_a_verifier_that_restarts_does_not_change_the_stream(trouble: str, calls: tuple[int, ...]) -> None:
    """In the first call, in the middle of the prefix, later, and several times."""
    service, request = Service(drafter()), request_for(prompt=LONG_PROMPT, params=SAMPLED)
    setattr(service.verifier, trouble, calls)
    chunks = await service.response(request)
    assert tokens_of(chunks) == truth_of(request)
    openings = sum(len(call.openings) for call in service.verifier.calls)
    assert openings > 1 or (trouble == "forgets_before" and calls == (0,))
    assert len(service.sink.of(metrics.VERIFIER_LOSSES)) == openings - 1
    await service.idle()


@pytest.mark.parametrize("trouble", ["dies_before", "answer_lost"])
@on_loop
async def test_a_verifier_that_is_lost_again_and_again_fails_the_response(trouble: str) -> None:
    service, request = Service(drafter()), request_for()
    setattr(service.verifier, trouble, range(4, 1000))
    with pytest.raises(RequestFailedError, match="alone in its steps, again"):
        await service.response(request)
    output = service.generations["g"].output_ids
    assert output == truth_of(request)[: len(output)]
    assert service.verifier.made - 4 == 6
    assert service.generations["g"].state is GenerationState.FAILED
    await until(lambda: service.fleet.empty)
    if trouble == "answer_lost":
        service.verifier.answer_lost = ()
        await service.idle()


@on_loop
async def test_losses_are_logged_with_the_request_they_concern(caplog: pytest.LogCaptureFixture) -> None:
    service, request = Service(), replace(request_for(window=0), request_id="r")
    service.verifier.dies_before = range(2, 1000)
    logger = "serve_app.coordination.generations.round_loop"
    with caplog.at_level(logging.INFO, logger=logger), pytest.raises(RequestFailedError):
        await service.response(request)
    events = [(record.message, vars(record)["fields"]) for record in caplog.records]
    assert [name for name, _ in events] == ["generation_started", *["round_lost"] * 5, "generation_failed"]
    assert all((fields["request_id"], fields["generation"]) == ("r", "g") for _, fields in events)
    assert [fields["round"] for name, fields in events if name == "round_lost"] == [2, 3, 4, 5, 6]
    assert "alone in its steps, again" in events[-1][1]["reason"]


@on_loop
async def test_losses_with_progress_between_them_never_add_up() -> None:
    service, request = Service(), request_for(window=0)
    service.verifier.dies_before = lost = range(3, 1000, 4)
    assert tokens_of(await service.response(request)) == truth_of(request)
    assert sum(number in lost for number in range(service.verifier.made)) > 6


@on_loop
async def test_a_prompt_that_does_not_fit_is_refused() -> None:
    service = Service(drafter(), blocks=10)
    with pytest.raises(ContextTooLongError, match=r"needs 61 positions .* limit of 40"):
        await service.response(request_for(prompt=LONG_PROMPT))
    assert service.generations["g"].state is GenerationState.FAILED
    await service.idle()


@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
@on_loop
async def test_a_drafter_that_talks_nonsense_does_not_change_the_stream(change: Callable[[bytes], bytes]) -> None:
    service, request = Service(drafter(), drafter()), request_for(params=SAMPLED)
    service.fleet.transports[FIRST].changes["draft"] = change
    assert tokens_of(await service.response(request)) == truth_of(request)
    assert list(service.fleet.faults) == [FIRST]
    assert service.sink.of(metrics.DRAFTER_LOSSES) == [1]
    await service.idle()


@pytest.mark.parametrize("step", ["open", "prefill", "draft"])
@on_loop
async def test_without_any_drafter_that_answers_the_stream_goes_on(step: str) -> None:
    service, request = Service(drafter()), request_for(params=SAMPLED)
    service.fleet.transports[FIRST].lost[step] = DrafterLostError("gone")
    assert tokens_of(await service.response(request)) == truth_of(request)
    assert service.fleet.reported[0] == FIRST
    await service.idle()


@pytest.mark.parametrize("state", ["leasing", "prefill", "draft", "first call", "later call", "restarting"])
@on_loop
async def test_a_client_that_leaves_while_a_round_is_made_leaves_nothing_behind(state: str) -> None:
    """The stream's task is cancelled, wherever it waits."""
    service, gate = Service(drafter()), Gate()
    if state == "leasing":
        service.fleet.gate = gate
    elif state == "restarting":
        service.verifier.dies_after, service.verifier.restarting = (3,), gate
    elif state in ("prefill", "draft"):
        service.fleet.transports[FIRST].gates[state] = gate
    else:
        service.verifier.gates[1 if state == "first call" else 8] = gate
    stream = asyncio.create_task(service.response(replace(request_for(prompt=LONG_PROMPT), max_tokens=150)))
    await gate.reached.wait()
    assert not stream.done()
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert service.generations["g"].state is GenerationState.CANCELLED
    gate.opened.set()
    await service.idle()
    usage = service.verifier.engine.usage()
    assert (usage.generations, usage.used_blocks) == (0, 0), "what is cached is free for others"
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert service.fleet.empty


@on_loop
async def test_a_client_that_leaves_takes_no_cached_prefix_with_it() -> None:
    """Neither its own, nor what earlier responses left there under the same prefix."""
    service, shared = Service(drafter()), LONG_PROMPT
    first = replace(request_for(prompt=(*shared, 1)), generation="first", max_tokens=2)
    await service.response(first)
    await service.idle()
    kept = service.verifier.engine.usage().cached_blocks
    chunks = service.chunks(replace(request_for(prompt=(*shared, 2)), generation="leaves", max_tokens=100))
    for _ in range(3):
        await anext(chunks)
    await chunks.aclose()
    await service.idle()
    assert service.verifier.engine.usage().cached_blocks >= kept > 0
    again = replace(request_for(prompt=(*shared, 2)), generation="again", max_tokens=20)
    chunks_again = [chunk async for chunk in service.chunks(again)]
    assert tokens_of(chunks_again) == truth_of(again)
    assert chunks_again[-1].stats.cached_tokens > 0


@pytest.mark.parametrize("taken", [1, 5])
@on_loop
async def test_a_stream_closed_between_two_chunks_leaves_nothing_behind(taken: int) -> None:
    service, request = Service(drafter()), request_for(params=SAMPLED)
    chunks = service.chunks(request)
    tokens = tokens_of([await anext(chunks) for _ in range(taken)])
    assert tokens == truth_of(request)[: len(tokens)]
    await chunks.aclose()
    assert service.generations["g"].state is (GenerationState.CANCELLED)
    await service.idle()
    usage = service.verifier.engine.usage()
    assert (usage.generations, usage.used_blocks) == (0, 0)
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
