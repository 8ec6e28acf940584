"""Places in a coordinator: a refusal is an error, who leaves frees its place, best effort pauses for promises."""

import asyncio
import pickle
from contextlib import suppress
from dataclasses import replace

import pytest

from actors.ray_errors import cause_of
from outrider.admission.response_load import VerifierNow
from outrider.admission.rounds import RoundShape
from outrider.admission.rules import AdmissionRules
from outrider.contracts.cost import LinearCostModel
from outrider.contracts.errors import NotAdmittedError
from outrider.contracts.requests import FinishReason, GenerationChunk, GenerationRequest, RoundStats, SamplingParams
from outrider.contracts.slo import BEST_EFFORT, LedgerRecord, SloClass
from serve_app import metrics
from serve_app.coordination.credit import MOST_UNREAD_TOKENS, Credit
from serve_app.coordination.generations.admission_queue import AdmissionQueue, AdmittedResponse
from serve_app.metrics import Sink
from tests.unit.serve_app.coordination.in_memory import RecordingSink
from tests.unit.virtual_clock import now_s, on_loop

EIGHT, TWO = SloClass("speed_8", 8.0), SloClass("speed_2", 2.0)
VERIFIER = VerifierNow(LinearCostModel(0.05, 0.0, 0.0, 0.0), RoundShape(rounds=1))  # one promise of 8 needs 0.4
CHUNK = GenerationChunk((1,), (), RoundStats(), 1)


def admitting(sink: Sink = Sink(), **rules: float) -> AdmissionQueue:  # noqa: B008 (without exporters it keeps nothing)
    fields = {"max_load": 0.5, "max_active": 3, "max_waiting": 4, "best_effort_floor": 0.0} | rules
    return AdmissionQueue(AdmissionRules(**fields), lambda: VERIFIER, sink, now_s)  # type: ignore[arg-type]


def request(name: str, slo: SloClass = BEST_EFFORT, *lower: SloClass, **fields: object) -> GenerationRequest:
    return GenerationRequest(name, (1,), SamplingParams(), 10, slo=slo, lower=lower, **fields)  # type: ignore[arg-type]


class Making:
    """A response that holds its place until it is told to end."""

    def __init__(self, to: AdmissionQueue, asked: GenerationRequest) -> None:
        self.place: AdmittedResponse | None = None
        self.credit, self.over = Credit(), asyncio.Event()
        self.task = asyncio.create_task(self._make(to, asked))

    async def _make(self, to: AdmissionQueue, asked: GenerationRequest) -> None:
        async with to.place(asked, self.credit) as self.place:
            await self.over.wait()

    async def end(self) -> None:
        """It is made."""
        self.over.set()
        await self.task

    async def grant(self) -> None:
        """Its client does."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@on_loop
async def test_a_wait_is_part_of_the_first_token_where_the_client_has_had_none() -> None:
    to = admitting(sink := RecordingSink(), max_active=1)
    first = Making(to, request("a"))
    await asyncio.sleep(0.5)
    again, new = Making(to, request("b", output_ids=(7,))), Making(to, request("c"))
    await asyncio.sleep(1.5)
    for each in (first, again, new):
        await each.end()
    assert sink.of(metrics.ADMISSION_WAIT_S, BEST_EFFORT.name) == [0.0, 1.5, 1.5]
    assert sink.of(metrics.FIRST_TOKEN_PHASE_S, "admission") == [0.0, 1.5]


@on_loop
async def test_a_promise_without_room_is_refused_when_its_wait_is_over() -> None:
    to = admitting()
    first, second = Making(to, request("a", EIGHT)), Making(to, request("b", EIGHT))
    await settled()
    assert (to.running, to.admitted) == (1, 2)
    with pytest.raises(NotAdmittedError, match=r"speed_8 needs 0\.4.*for 10\.0 s; try again in \d+ s") as refused:
        await second.task
    assert now_s() == pytest.approx(10.0)
    assert refused.value.retry_after_s >= 1
    await first.end()
    assert (to.running, to.admitted) == (0, 0)


@on_loop
async def test_who_leaves_while_it_waits_frees_its_place_in_the_queue() -> None:
    to = admitting(max_waiting=1)
    first, second = Making(to, request("a", EIGHT)), Making(to, request("b", EIGHT))
    await settled()
    await second.grant()
    assert to.admitted == 1
    third = Making(to, request("c", EIGHT))
    await settled()
    assert not third.task.done(), "it may wait"
    await first.end()
    await settled()
    assert third.place is not None
    await third.end()


@on_loop
async def test_who_leaves_at_the_moment_it_is_let_in_holds_nothing() -> None:
    to = admitting()
    first, second = Making(to, request("a", EIGHT)), Making(to, request("b", EIGHT))
    await settled()
    first.over.set()
    second.task.cancel()
    await asyncio.gather(first.task, second.task, return_exceptions=True)
    assert (to.running, to.admitted) == (0, 0)


@on_loop
async def test_best_effort_begins_nothing_while_a_promise_needs_its_place() -> None:
    to = admitting(max_active=1)
    slow = Making(to, request("slow"))
    await settled()
    assert slow.credit.left
    fast = Making(to, request("fast", TWO))
    await settled()
    assert fast.place is not None, "at once"
    assert not slow.credit.left
    slow.credit.sent(5)
    slow.credit.read(5)
    assert not slow.credit.left, "reading is no place"
    assert (to.running, to.admitted, to.report().suspended) == (1, 2, 1)
    await fast.end()
    assert slow.credit.left
    await slow.end()


@on_loop
async def test_one_suspended_before_it_runs_does_not_run() -> None:
    to = admitting(max_active=1)
    slow, fast = Making(to, request("slow")), Making(to, request("fast", TWO))
    await settled()
    assert fast.place is not None
    assert not slow.credit.left
    await fast.end()
    assert slow.credit.left
    await slow.end()
    assert to.admitted == 0


@pytest.mark.parametrize("slo", [BEST_EFFORT, TWO])
@on_loop
async def test_who_does_not_read_gives_its_place_back_and_gets_it_again(slo: SloClass) -> None:
    to = admitting(max_active=1)
    deaf, other = Making(to, request("deaf", slo)), Making(to, request("other", slo))
    await settled()
    deaf.credit.sent(MOST_UNREAD_TOKENS)
    await asyncio.sleep(9.0)
    assert other.place is None, "a short pause is no matter"
    await asyncio.sleep(2.0)
    assert other.place is not None
    assert (to.running, to.admitted, to.report().stalled) == (1, 2, 1)
    deaf.credit.read(MOST_UNREAD_TOKENS)
    await settled()
    assert not deaf.credit.left, "its place is taken"
    assert (to.report().suspended, to.report().stalled) == (1, 0)
    await other.end()
    assert deaf.credit.left
    await deaf.end()
    assert (to.running, to.admitted) == (0, 0)


@on_loop
async def test_who_reads_now_and_then_keeps_its_place() -> None:
    to = admitting(max_active=1)
    slow, other = Making(to, request("slow", TWO)), Making(to, request("other"))
    await settled()
    slow.credit.sent(MOST_UNREAD_TOKENS // 2)
    for part in range(1, 10):
        slow.credit.sent(MOST_UNREAD_TOKENS // 2)
        assert not slow.credit.left
        await asyncio.sleep(9.0)
        slow.credit.read(part * MOST_UNREAD_TOKENS // 2)
        assert slow.credit.left
    assert other.place is None
    await other.grant()
    await slow.end()


@on_loop
async def test_one_that_nobody_reads_and_whose_client_leaves_holds_nothing() -> None:
    to = admitting(max_active=1)
    deaf = Making(to, request("deaf"))
    await settled()
    deaf.credit.sent(MOST_UNREAD_TOKENS)
    await asyncio.sleep(11.0)
    await deaf.grant()
    assert (to.running, to.admitted, to.report().stalled) == (0, 0, 0)


@on_loop
async def test_a_lower_class_is_told_with_the_first_chunk_only() -> None:
    to = admitting(max_wait_s=3.0)
    first, second = Making(to, request("a", EIGHT)), Making(to, request("b", EIGHT, BEST_EFFORT))
    await asyncio.sleep(3.5)
    assert second.place is not None
    assert second.place.slo == BEST_EFFORT
    assert [second.place.annotated(CHUNK).granted for _ in range(2)] == [BEST_EFFORT, None]
    assert first.place is not None
    assert first.place.annotated(CHUNK).granted is None
    await first.end()
    await second.end()


@on_loop
async def test_what_ended_is_counted_as_kept_or_late_and_what_was_cancelled_is_not() -> None:
    to = admitting(max_load=1.0)
    for name, elapsed_s in (("kept", 1.0), ("late", 9.0), ("left", None)):
        one = Making(to, request(name, TWO))
        await settled()
        assert one.place is not None
        if elapsed_s is not None:
            ledger = LedgerRecord(tokens=8, elapsed_s=elapsed_s)
            one.place.annotated(replace(CHUNK, finish_reason=FinishReason.STOP, ledger=ledger))
        await one.end()
    found = to.report().classes["speed_2"]
    assert (found.asked, found.admitted, found.kept, found.late) == (3, 3, 1, 1)


def test_a_refusal_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(NotAdmittedError("why", 7)))
    assert (str(error), error.retry_after_s) == ("why", 7)
    assert cause_of(error) is error
