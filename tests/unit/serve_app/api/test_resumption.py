"""A response whose coordinator is lost goes on at another one: real round loops, each over engines of its own."""

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    RayError,
    TaskCancelledError,
    UnserializableException,
    WorkerCrashedError,
)
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError

from outrider.contracts.errors import (
    BusyError,
    ContextTooLongError,
    GenerationFailedError,
    OtherTargetError,
    ParameterError,
    VerifierAwayError,
    VerifierLostError,
)
from outrider.contracts.requests import FinishReason, GenerationChunk, GenerationRequest, RoundStats, TokenLogprobs
from outrider.contracts.slo import LedgerRecord, SloClass
from outrider.routing.resuming import pause_s
from serve_app.api.resumption import advanced, may_resume, next_attempt, resumed
from tests.unit.engines.reference import assert_same_logprobs
from tests.unit.serve_app.api.in_memory_coordinators import Coordinators
from tests.unit.serve_app.api.in_memory_service import PENALISED, Service, drafter, request_for, tokens_of, truth_of
from tests.unit.serve_app.api.test_http_errors import through_ray
from tests.unit.serve_app.coordination.in_memory import GREEDY, PROMPT, SAMPLED, Gate, until
from tests.unit.virtual_clock import VirtualLoop, now_s, on_loop

DEATH = ActorDiedError()
ASKED = replace(request_for(params=SAMPLED), max_tokens=12, logprobs=2, prompt_logprobs=True, request_id="r")
WORDS = [f"w{token_id}" for token_id in truth_of(ASKED)]
STOP = (f"{WORDS[8]} {WORDS[9]}", f"{WORDS[3]} {WORDS[4]} never")  # the second one holds text back in vain
REQUESTS = {
    "target alone": replace(ASKED, window=0),
    "drafted": replace(ASKED, window=3),
    "penalised": replace(ASKED, params=PENALISED, window=3, prompt_logprobs=False),
    "stop string": replace(ASKED, stop=STOP, window=0),
}


@functools.cache
def undisturbed(request: GenerationRequest) -> tuple[GenerationChunk, ...]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:  # rounds depend on when drafts come
        return tuple(runner.run(Service(drafter()).response(request)))


def text_of(chunks: Sequence[GenerationChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def logprobs_of(chunks: Sequence[GenerationChunk]) -> list[TokenLogprobs]:
    return [entry for chunk in chunks for entry in chunk.logprobs]


def assert_same_response(chunks: Sequence[GenerationChunk], request: GenerationRequest) -> None:
    """What a client reads is the same, and said once; rounds differ only if they were drafted otherwise."""
    expected = undisturbed(request)
    assert tokens_of(chunks) == tokens_of(expected)
    assert text_of(chunks) == text_of(expected)
    assert_same_logprobs(logprobs_of(chunks), logprobs_of(expected))
    assert_same_logprobs(chunks[0].prompt_logprobs[1:], [e for e in expected[0].prompt_logprobs if e is not None])
    assert not any(chunk.prompt_logprobs for chunk in chunks[1:])
    finishes = [chunk.finish_reason for chunk in chunks]
    assert finishes == [None] * (len(chunks) - 1) + [expected[-1].finish_reason]
    assert chunks[-1].shown_tokens == expected[-1].shown_tokens
    assert [chunk.stats.rounds for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert all(one.stats.drafted_tokens <= two.stats.drafted_tokens for one, two in pairwise(chunks))
    if request.window == 0:
        assert [chunk.stats for chunk in chunks] == [chunk.stats for chunk in expected]


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_loss_after_any_chunk_changes_nothing(request_: GenerationRequest) -> None:
    @on_loop
    async def check(after: int, length: int) -> None:
        coordinators = Coordinators((after, DEATH))
        async with aclosing(coordinators.response(request_)) as chunks:
            assert_same_response([chunk async for chunk in chunks], request_)
        attempts = 2 if after < length else 1  # one lost after its last chunk had said everything
        assert len(coordinators.records) == attempts
        assert (coordinators.resumed, len(coordinators.pauses_s)) == (attempts - 1, attempts - 1)

    assert undisturbed(request_)[-1].finish_reason is (FinishReason.STOP if request_.stop else FinishReason.LENGTH)
    length = len(undisturbed(request_))
    for after in range(length + 1):
        check(after, length)


@on_loop
async def test_many_losses_with_progress_between_them_never_add_up(caplog: pytest.LogCaptureFixture) -> None:
    errors = [
        DEATH,
        ActorUnavailableError("gone", None),
        through_ray(VerifierLostError("hung")),
        through_ray(through_ray(GenerationFailedError("lost again and again"))),
        through_ray(BusyError("full")),
        WorkerCrashedError(),
    ]
    coordinators = Coordinators(*((1, error) for error in errors))
    request = REQUESTS["drafted"]
    expected = await Service(drafter()).response(request)
    with caplog.at_level(logging.WARNING, logger="serve_app.api.resumption"):
        chunks = [chunk async for chunk in coordinators.response(request, max_failures=1)]
    assert tokens_of(chunks) == tokens_of(expected)
    assert text_of(chunks) == text_of(expected)
    assert [chunk.stats.rounds for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert [record.generation for record in coordinators.records] == ["g", *(f"g.{i}" for i in range(1, 7))]
    assert coordinators.pauses_s == [pause_s(1)] * 6
    logged = [record for record in caplog.records if record.name == "serve_app.api.resumption"]
    events = [(record.message, vars(record)["fields"]) for record in logged]
    names = ["ActorDiedError", "ActorUnavailableError", "VerifierLostError", "GenerationFailedError", "BusyError"]
    assert events == [
        (
            "response_resumed",
            {
                "request_id": "r",
                "generation": coordinators.records[i].generation,
                "attempt": i + 1,
                "tokens": len(coordinators.records[i + 1].output_ids),
                "reason": name,
            },
        )
        for i, name in enumerate([*names, "WorkerCrashedError"])
    ]


@pytest.mark.parametrize("begun", [False, True])
@on_loop
async def test_failures_in_a_row_are_bounded(*, begun: bool) -> None:
    losses = [(0, DEATH)] * 100
    coordinators = Coordinators((2, DEATH), *losses) if begun else Coordinators(*losses)
    response = coordinators.response(request_for(window=0), max_failures=4)
    received = [await anext(response) for _ in range(2 if begun else 0)]
    with pytest.raises(ActorDiedError):
        await anext(response)
    assert tokens_of(received) == truth_of(request_for())[: len(received)]
    assert coordinators.pauses_s == [pause_s(failures) for failures in (1, 2, 3, 4)]
    assert len(coordinators.records) == 5


@on_loop
async def test_a_response_that_costs_verifiers_is_given_up_soon_and_a_full_service_is_waited_for() -> None:
    lost = through_ray(VerifierLostError("gone"))
    coordinators = Coordinators((2, DEATH), *[(0, lost)] * 100)
    with pytest.raises(VerifierLostError):
        [chunk async for chunk in coordinators.response(request_for(window=0))]
    assert len(coordinators.records) == 4
    busy = [(0, through_ray(BusyError("full")))] * 30
    coordinators = Coordinators((2, DEATH), *busy)
    request = request_for(window=0)
    chunks = [chunk async for chunk in coordinators.response(request, max_failures=4)]
    assert tokens_of(chunks) == truth_of(request)


@on_loop
async def test_coordinators_without_a_verifier_cost_nothing_and_only_losses_add_up() -> None:
    away, lost = through_ray(VerifierAwayError("restarts")), through_ray(VerifierLostError("handed over"))
    coordinators = Coordinators((2, lost), *[(0, away)] * 6, (0, lost), (0, away))
    request = request_for(window=0)
    assert tokens_of([chunk async for chunk in coordinators.response(request, max_failures=20)]) == truth_of(request)
    assert len(coordinators.records) == 10
    coordinators = Coordinators(*[(0, away), (0, lost)] * 10)
    with pytest.raises(VerifierLostError):
        [chunk async for chunk in coordinators.response(request, max_failures=20)]
    assert len(coordinators.records) == 8, "a request that kills verifiers meets four of them"


@on_loop
async def test_who_began_it_is_named_to_whoever_goes_on_and_if_replaced_soon_nobody_is_asked() -> None:
    request, records = request_for(window=0), list[GenerationRequest]()
    whole = [chunk async for chunk in Coordinators().response(request)]

    async def attempt(record: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        records.append(record)
        if len(records) == 1:
            yield replace(whole[0], target="old")
            yield whole[1]
            raise through_ray(VerifierLostError("hung"))
        raise through_ray(OtherTargetError("replaced"))

    with pytest.raises(OtherTargetError):
        [chunk async for chunk in resumed(request, attempt, max_failures=100, on_resume=lambda: None)]
    assert [record.target for record in records] == ["", *["old"] * (len(records) - 1)]
    assert len(records) == 4


@on_loop
async def test_lost_together_they_come_back_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself a response pauses more or less long, so that another coordinator is not met by all at once."""
    monkeypatch.setattr("serve_app.api.resumption.random", Random(45))  # which six may not be the same by chance
    back_at_s = list[float]()

    async def one(name: str) -> None:
        coordinators = Coordinators((2, DEATH))
        request = request_for(name, window=0)
        ends_s = list[float]()

        async def attempt(record: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
            ends_s.append(now_s())
            async with aclosing(coordinators.attempt(record)) as chunks:
                async for chunk in chunks:
                    yield chunk

        response = resumed(request, attempt, max_failures=3, on_resume=lambda: None)
        assert tokens_of([chunk async for chunk in response]) == truth_of(request)
        back_at_s.append(ends_s[1])

    await asyncio.gather(*(one(f"g{number}") for number in range(6)))
    assert len({round(at_s, 4) for at_s in back_at_s}) == 6


@on_loop
async def test_an_overload_is_told_before_the_first_chunk_and_waited_out_afterwards() -> None:
    busy = through_ray(BusyError("full"))
    coordinators = Coordinators((0, busy))
    with pytest.raises(BusyError):
        await anext(coordinators.response(request_for()))
    assert (len(coordinators.records), coordinators.pauses_s) == (1, [])
    coordinators = Coordinators((3, DEATH), *[(0, busy)] * 3)
    request = request_for(window=0)
    assert tokens_of([chunk async for chunk in coordinators.response(request)]) == truth_of(request)
    assert coordinators.pauses_s == [pause_s(failures) for failures in (1, 2, 3, 4)]


@on_loop
async def test_what_no_coordinator_can_do_is_told_at_once() -> None:
    coordinators = Coordinators((2, through_ray(ZeroDivisionError("our mistake"))))
    with pytest.raises(ZeroDivisionError):
        [chunk async for chunk in coordinators.response(request_for())]
    assert len(coordinators.records) == 1


@on_loop
async def test_a_stream_that_ends_in_silence_is_taken_up_again() -> None:
    request, records = request_for(window=0), list[GenerationRequest]()

    async def silent(record: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        records.append(record)
        async with aclosing(Service().chunks(record)) as chunks:
            async for chunk in chunks:
                yield chunk
                if len(records) < 4:
                    return

    coordinators = Coordinators()
    response = resumed(request, silent, max_failures=1, on_resume=coordinators.note_resumed, pause=coordinators.pause)
    assert tokens_of([chunk async for chunk in response]) == truth_of(request)
    assert [len(record.output_ids) for record in records] == [0, 1, 2, 3]


@pytest.mark.parametrize("after", [1, 4], ids=["first attempt", "second attempt"])
@on_loop
async def test_a_client_that_leaves_between_two_chunks_closes_the_attempt(after: int) -> None:
    coordinators = Coordinators((2, DEATH))
    response = coordinators.response(request_for(window=0))
    for _ in range(after):
        await anext(response)
    await response.aclose()
    assert coordinators.left == [record.generation for record in coordinators.records]
    assert len(coordinators.records) == (1 if after < 2 else 2)


@pytest.mark.parametrize("where", ["making", "pausing"])
@on_loop
async def test_a_client_that_leaves_in_between_starts_nothing_more(where: str) -> None:
    coordinators, gate = Coordinators((2, DEATH)), Gate()
    if where == "making":
        coordinators.gates[1] = gate
    else:
        coordinators.pause_gate = gate

    async def read() -> None:
        async with aclosing(coordinators.response(request_for(window=0))) as chunks:
            async for _ in chunks:
                pass

    stream = asyncio.create_task(read())
    await gate.reached.wait()
    stream.cancel()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert (len(coordinators.records), coordinators.left) == (1, ["g"])
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (ActorDiedError(), True, True),
        (ActorUnavailableError("gone", None), True, True),
        (WorkerCrashedError(), True, True),
        (DeploymentUnavailableError(DeploymentID("Coordinator")), True, True),
        (VerifierLostError("hung"), True, True),
        (VerifierAwayError("restarts"), True, True),
        (OtherTargetError("replaced"), True, True),
        (GenerationFailedError("lost 6 times"), True, True),
        (BusyError("full"), False, True),
        (BackPressureError(num_queued_requests=3, max_queued_requests=2), False, True),
        (ContextTooLongError("needs less"), False, False),
        (ParameterError("seed", "an integer", "x"), False, False),
        (ZeroDivisionError("a mistake of ours"), False, False),
        (TaskCancelledError(), False, False),
        (RequestCancelledError("r"), False, False),
        (UnserializableException("a traceback"), False, False),
        (TimeoutError(), False, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_who_may_go_on_wherever_the_error_was_raised(error: Exception, *, before: bool, after: bool) -> None:
    for form in (error, through_ray(error), through_ray(through_ray(error))):
        assert (may_resume(form, begun=False), may_resume(form, begun=True)) == (before, after)


def test_an_error_that_could_not_travel_is_no_loss() -> None:
    class StuckError(Exception):
        def __reduce__(self) -> str:
            raise TypeError("cannot be pickled")

    error = through_ray(StuckError())
    assert isinstance(error, RayError)
    assert not may_resume(error, begun=True)


def test_the_record_grows_by_what_was_received_and_changes_only_its_name() -> None:
    request = replace(GenerationRequest("g", PROMPT, GREEDY, 9, stop=("x",), logprobs=1), output_ids=(4,))
    stats = RoundStats(3, 2, 8, 5, 4)
    record = advanced(request, (7, 8), GenerationChunk((8,), (), stats, 2))
    assert record == replace(request, output_ids=(4, 7, 8), stats=stats)
    assert next_attempt(record, "g", 12, gap_s=1.0) == replace(record, generation="g.12")
    ledger = LedgerRecord(tokens=2, elapsed_s=0.5, slack_s=0.25)
    record = advanced(request, (7, 8), GenerationChunk((8,), (), stats, 2, ledger=ledger))
    assert record == replace(request, output_ids=(4, 7, 8), stats=stats, ledger=ledger)
    assert next_attempt(record, "g", 1, gap_s=1.0) == replace(
        record, generation="g.1", ledger=LedgerRecord(tokens=2, elapsed_s=1.5, slack_s=-0.75)
    )


@on_loop
async def test_the_time_between_two_attempts_counts_against_the_promise() -> None:
    """A clock that only this test moves: by a tenth while an attempt fails, by its length while one pauses."""
    now_s, records = 50.0, list[GenerationRequest]()
    ledger = LedgerRecord(tokens=4, elapsed_s=1.0, slack_s=0.5, times_behind=1)
    losses = ["begun", "not begun", "not begun"]

    async def attempt(record: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        nonlocal now_s
        records.append(record)
        now_s += 0.125
        kind = losses.pop(0) if losses else "whole"
        if kind == "begun":
            yield GenerationChunk((7,) * 5, (), RoundStats(rounds=2), 5, ledger=ledger)
            now_s += 0.125
        if kind != "whole":
            raise ActorDiedError
        yield GenerationChunk((8,), (), RoundStats(rounds=3), 6, finish_reason=FinishReason.LENGTH, ledger=ledger)

    async def pause(_: float) -> None:
        nonlocal now_s
        now_s += 2.0

    request = request_for()
    response = resumed(request, attempt, max_failures=8, on_resume=lambda: None, pause=pause, clock=lambda: now_s)
    chunks = [chunk async for chunk in response]
    assert [len(chunk.token_ids) for chunk in chunks] == [5, 1]
    ledgers = [record.ledger for record in records]
    assert ledgers == [None, *(ledger.delayed(gap_s) for gap_s in (2.125, 4.25, 6.375))]


def test_a_promise_goes_with_the_response() -> None:
    """Whatever chunk it is lost after, its account has every token but the first ones."""
    request = replace(request_for(window=0), slo=SloClass("easy", 1e-3), max_tokens=6)

    @on_loop
    async def check(after: int) -> None:
        coordinators = Coordinators((after, DEATH))
        chunks = [chunk async for chunk in coordinators.response(request)]
        assert tokens_of(chunks) == truth_of(request)
        ledgers = [chunk.ledger for chunk in chunks if chunk.ledger is not None]
        assert [ledger.tokens for ledger in ledgers] == list(range(6))
        assert all(one.elapsed_s < two.elapsed_s for one, two in pairwise(ledgers))
        assert {record.slo for record in coordinators.records} == {request.slo}
        taken_over = coordinators.records[1].ledger
        assert taken_over is not None
        assert taken_over.tokens == ledgers[after - 1].tokens
        assert taken_over.elapsed_s > ledgers[after - 1].elapsed_s, "the gap counts"

    for after in range(1, 6):
        check(after)


def test_pauses_grow_up_to_a_limit() -> None:
    pauses_s = [pause_s(failures) for failures in range(1, 101)]
    assert pauses_s[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert set(pauses_s[5:]) == {2.0}
