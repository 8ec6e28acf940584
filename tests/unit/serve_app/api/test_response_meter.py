"""What an ingress measures of a response, by a clock that is driven by hand."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from outrider.contracts.errors import BusyError, ContextTooLongError, GenerationFailedError
from outrider.contracts.requests import FinishReason, GenerationChunk, RoundStats
from outrider.contracts.slo import BEST_EFFORT, LedgerRecord, SloClass
from serve_app import metrics
from serve_app.api.response_meter import MAX_METERED_KEYS, OTHER_KEYS, ResponseMeter
from tests.unit.serve_app.coordination.in_memory import RecordingSink

LAST = FinishReason.LENGTH


def chunk(tokens: int, finish: FinishReason | None = None, cached: int = 0) -> GenerationChunk:
    return GenerationChunk((7,) * tokens, (), RoundStats(rounds=1, cached_tokens=cached), tokens, finish_reason=finish)


def meter(*times_s: float) -> tuple[ResponseMeter, RecordingSink]:
    """A meter whose clock says these times one after the other."""
    sink = RecordingSink()
    return ResponseMeter(sink, iter(times_s).__next__, deadline_s=30.0), sink


def ends(sink: RecordingSink) -> dict[str, float]:
    name = metrics.RESPONSES.name
    return {key[1]: sum(values) for key, values in sink.values.items() if key[0] == name}


def test_latencies_are_those_the_client_sees() -> None:
    responses, sink = meter(10.0, 10.5, 11.5, 11.75)
    with responses.response(prompt_tokens=9) as metered:
        metered.chunk(chunk(1, cached=4))
        metered.chunk(chunk(4, cached=4))
        metered.chunk(chunk(1, LAST, cached=4))
    assert sink.of(metrics.TTFT_S) == [0.5]
    assert sink.of(metrics.INTER_TOKEN_S) == [0.25] * 5, "a chunk's time is shared by its tokens"
    assert sink.of(metrics.E2E_S) == [1.75]
    assert (sink.of(metrics.PROMPT_TOKENS), sink.of(metrics.CACHED_TOKENS)) == ([9], [4])
    assert sink.of(metrics.GENERATION_TOKENS) == [5, 1], "at most once a second, and at the end"
    assert (sink.of(metrics.PROMPT_LENGTH), sink.of(metrics.RESPONSE_LENGTH)) == ([9], [6])
    assert sink.of(metrics.RUNNING) == [1, 0]
    assert ends(sink) == {"length": 1}


def test_a_chunk_without_tokens_divides_nothing_by_zero() -> None:
    responses, sink = meter(0.0, 1.0, 2.0)
    with responses.response(1) as metered:
        metered.chunk(chunk(1))
        metered.chunk(chunk(0, FinishReason.STOP))
    assert sink.of(metrics.INTER_TOKEN_S) == []
    assert (sink.of(metrics.E2E_S), ends(sink)) == ([2.0], {"stop": 1})


def test_a_chunk_that_only_keeps_the_record_is_no_sign_of_life_to_the_client() -> None:
    responses, sink = meter(0.0, 1.0, 3.0)
    with responses.response(1) as metered:
        for tokens in (1, 0, 2):
            metered.chunk(chunk(tokens))
    assert sink.of(metrics.INTER_TOKEN_S) == [1.0, 1.0]
    assert sink.of(metrics.GENERATION_TOKENS) == [1, 2]


@pytest.mark.parametrize(
    ("chunks", "error", "end"),
    [
        ([], BusyError("full"), "refused"),
        ([], ContextTooLongError("needs less"), "refused"),
        ([], GenerationFailedError("lost"), "failed"),
        ([chunk(1)], GenerationFailedError("lost"), "failed"),
        ([chunk(1)], ZeroDivisionError("a mistake of ours"), "failed"),
        ([], asyncio.CancelledError(), "cancelled"),
        ([chunk(1)], GeneratorExit(), "cancelled"),
        ([chunk(1), chunk(1, LAST)], GeneratorExit(), "length"),
        ([chunk(1), chunk(1, LAST)], asyncio.CancelledError(), "length"),
        ([], KeyboardInterrupt(), "failed"),
        ([], None, "failed"),
        ([chunk(1)], None, "failed"),
        ([chunk(2, FinishReason.STOP)], None, "stop"),
    ],
)
def test_every_response_ends_once_and_runs_no_more(
    chunks: Iterable[GenerationChunk], error: BaseException | None, end: str
) -> None:
    responses, sink = meter(*map(float, range(10)))

    def respond() -> None:
        with responses.response(5) as metered:
            for each in chunks:
                metered.chunk(each)
            if error is not None:
                raise error

    if error is None:
        respond()
    else:
        with pytest.raises(type(error)):
            respond()
    assert ends(sink) == {end: 1}
    assert sink.of(metrics.RUNNING) == [1, 0]
    assert len(sink.of(metrics.PROMPT_TOKENS)) == (1 if chunks else 0), "only of responses that began"
    assert len(sink.of(metrics.E2E_S)) == (1 if end in ("length", "stop") else 0)


@pytest.mark.parametrize(("waited_s", "end"), [(29.0, "cancelled"), (30.0, "failed")])
def test_a_deadline_is_told_from_a_client_that_left(waited_s: float, end: str) -> None:
    responses, sink = meter(0.0, 1.0, 1.0 + waited_s)

    def respond() -> None:
        with responses.response(5) as metered:
            metered.chunk(chunk(1))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        respond()
    assert ends(sink) == {end: 1}


def test_responses_run_side_by_side() -> None:
    responses, sink = meter(0.0, 0.0, 5.0, 6.0)
    with responses.response(1) as first, responses.response(2) as second:
        first.chunk(chunk(1, LAST))
        second.chunk(chunk(1, LAST))
        second.resumed()
    assert sink.of(metrics.RUNNING) == [1, 2, 1, 0]
    assert sink.of(metrics.TTFT_S) == [5.0, 6.0]
    assert sink.of(metrics.RESUMED) == [1]


@pytest.mark.parametrize(
    ("tokens_per_s", "ledger", "speeds", "kept"),
    [
        (4.0, LedgerRecord(tokens=8, elapsed_s=2.0), [4.0], {"yes": 1}),
        (4.0, LedgerRecord(tokens=8, elapsed_s=2.5, slack_s=0.5), [3.2], {"no": 1}),
        (4.0, LedgerRecord(tokens=9, elapsed_s=2.0, times_behind=3), [4.5], {"yes": 1}),
        (4.0, LedgerRecord(), [], {}),  # all came at once: there is no speed
        (4.0, None, [], {}),
        (0.0, LedgerRecord(tokens=8, elapsed_s=2.0), [4.0], {}),
        (0.0, None, [], {}),
    ],
)
def test_of_a_complete_response_it_is_told_whether_its_promise_was_kept(
    tokens_per_s: float, ledger: LedgerRecord | None, speeds: list[float], kept: dict[str, float]
) -> None:
    responses, sink = meter(0.0, 1.0, 2.0)
    with responses.response(1, SloClass("some", tokens_per_s)) as metered:
        metered.chunk(replace(chunk(1), ledger=LedgerRecord()))
        assert sink.of(metrics.RESPONSE_SPEED, "some") == []
        metered.chunk(replace(chunk(8, LAST), ledger=ledger))
    assert sink.of(metrics.RESPONSE_SPEED, "some") == speeds
    assert {answer: len(sink.of(metrics.SLO_RESPONSES, "some", answer)) for answer in kept} == kept
    assert sum(key[0] == metrics.SLO_RESPONSES.name for key in sink.values) == len(kept)


@pytest.mark.parametrize(("queue", "compute", "cause"), [(2, 1, "queue"), (1, 2, "compute"), (0, 0, "queue")])
@pytest.mark.parametrize("elapsed_s", [1.0, 4.0])
def test_a_broken_promise_is_told_with_its_cause(elapsed_s: float, queue: int, compute: int, cause: str) -> None:
    responses, sink = meter(0.0, 1.0)
    stats = RoundStats(rounds=4, late_queue_rounds=queue, late_compute_rounds=compute)
    with responses.response(1, SloClass("some", 4.0)) as metered:
        metered.chunk(replace(chunk(8, LAST), stats=stats, ledger=LedgerRecord(tokens=8, elapsed_s=elapsed_s)))
    broken = {key for key in sink.values if key[0] == metrics.SLO_BROKEN.name}
    assert broken == ({(metrics.SLO_BROKEN.name, "some", cause)} if elapsed_s > 2.0 else set())


def test_a_response_that_is_given_up_broke_no_promise() -> None:
    responses, sink = meter(0.0, 1.0, 2.0)
    slow = LedgerRecord(tokens=1, elapsed_s=9.0)

    def respond() -> None:
        with responses.response(1, SloClass("some", 4.0)) as metered:
            metered.chunk(replace(chunk(1), ledger=slow))
            raise GenerationFailedError("lost")

    with pytest.raises(GenerationFailedError):
        respond()
    assert not {metrics.SLO_RESPONSES.name, metrics.RESPONSE_SPEED.name} & {key[0] for key in sink.values}


def test_who_names_no_class_is_metered_as_best_effort() -> None:
    responses, sink = meter(0.0, 1.0)
    with responses.response(1) as metered:
        metered.chunk(replace(chunk(2, LAST), ledger=LedgerRecord(tokens=3, elapsed_s=1.5)))
    assert sink.of(metrics.RESPONSE_SPEED, BEST_EFFORT.name) == [2.0]


def test_tokens_are_counted_by_key_for_a_bounded_number_of_keys() -> None:
    responses, sink = meter()
    for number in range(MAX_METERED_KEYS + 2):
        responses.used(f"key-{number}", prompt_tokens=9, generation_tokens=number)
    responses.used("key-1", prompt_tokens=4, generation_tokens=7)
    assert sink.of(metrics.KEY_TOKENS, "key-1", "prompt") == [9, 4]
    assert sink.of(metrics.KEY_TOKENS, "key-1", "generation") == [1, 7]
    assert sink.of(metrics.KEY_TOKENS, OTHER_KEYS, "prompt") == [9, 9], "keys beyond the bound share a series"
    assert len({key[1] for key in sink.values}) == MAX_METERED_KEYS + 1
