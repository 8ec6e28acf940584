"""Queues responses until ``outrider.admission`` admits or refuses them; this module adds futures and timers.

A task that makes a response holds its *place* by a context manager, so success, error and cancellation all free it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from outrider.admission.admission import Admission
from outrider.admission.decisions import AdmissionReport, AdmissionRequest, Admitted
from outrider.admission.response_load import VerifierNow
from outrider.admission.rules import AdmissionRules
from outrider.contracts.errors import NotAdmittedError
from outrider.contracts.requests import GenerationChunk, GenerationId, GenerationRequest
from outrider.contracts.slo import SloClass
from serve_app import metrics
from serve_app.coordination.credit import Credit
from serve_app.metrics import Sink

_STALLED_AFTER_S = 10.0  # without credit, as the client does not read
_WAITED_S = 0.05  # less is refused at once
_DECIDED_EVERY_S = 1.0  # while any response waits: the promised load changes with every round


class AdmittedResponse:
    """An admitted response: the SLO class it was granted, its output tokens, and whether it kept the promise."""

    def __init__(self, request: GenerationRequest, slo: SloClass) -> None:
        self._asked, self.slo = request.slo, slo
        self._told_class = slo == request.slo
        self.output_tokens = len(request.output_ids)
        self.finished = False
        self.kept = True

    def annotated(self, chunk: GenerationChunk) -> GenerationChunk:
        """Count a chunk; return it with the granted class if it is the first one and the class is not the one asked."""
        self.output_tokens += len(chunk.token_ids)
        if chunk.finish_reason is not None:
            self.finished = True
            speed = None if chunk.ledger is None else chunk.ledger.tokens_per_s
            self.kept = speed is None or speed >= self.slo.tokens_per_s
        if self._told_class:
            return chunk
        self._told_class = True
        return replace(chunk, granted=self.slo)


class AdmissionQueue:
    """The admission queue of one coordinator. All methods run on its event loop."""

    def __init__(
        self, rules: AdmissionRules, look: Callable[[], VerifierNow], sink: Sink, clock: Callable[[], float]
    ) -> None:
        """Start empty. ``look`` returns the verifier's present cost and memory; ``clock`` is monotonic, in seconds."""
        self._admission = Admission(rules)
        self._look, self._sink, self._clock = look, sink, clock
        self._waiting: dict[GenerationId, asyncio.Future[Admitted]] = {}
        self._credits: dict[GenerationId, Credit] = {}  # of waiting ones too: one may be suspended before its task runs
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        return self._admission.active

    @property
    def admitted(self) -> int:
        """Number of responses here: running, suspended and waiting ones."""
        return len(self._credits)

    @property
    def places(self) -> int:
        """Most responses that may be here, running or waiting."""
        rules = self._admission.rules
        return rules.max_active + rules.max_waiting

    def take(self, rules: AdmissionRules) -> None:
        """Replace the rules; the deadlines of responses that wait already stay as they are."""
        if rules != self._admission.rules:
            self._admission.rules = rules
            self._decide()

    def report(self) -> AdmissionReport:
        return self._admission.report()

    @asynccontextmanager
    async def place(self, request: GenerationRequest, credit: Credit) -> AsyncIterator[AdmittedResponse]:
        """Wait until a response may begin, and hold its place in the context; a suspended response has no ``credit``.

        A response whose client has not read for 10 s gives its place back, and queues for one when it is read again.

        Raises:
            NotAdmittedError: no place was free in time.
        """
        name, reading = request.generation, _Reading(self, request.generation)
        waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
        place: AdmittedResponse | None = None
        self._credits[name] = credit
        credit.watch(reading.on_behind)
        self._admission.ask(_asked(request, self._clock()))
        try:
            self._decide()
            admitted = await waiting
            place = AdmittedResponse(request, admitted.slo)
            self._sink.record(metrics.ADMISSION_WAIT_S, admitted.waited_s, slo_class=admitted.slo.name)
            if not request.output_ids:
                self._sink.record(metrics.FIRST_TOKEN_PHASE_S, admitted.waited_s, phase="admission")
            yield place
        finally:
            reading.over()
            self._waiting.pop(name, None)
            self._credits.pop(name, None)
            self._admission.withdraw(name)
            ended = place is not None and place.finished
            tokens, kept = (place.output_tokens, place.kept) if place is not None and ended else (None, True)
            self._admission.end(name, self._clock(), tokens, kept=kept)
            self._decide()

    def stall(self, name: GenerationId) -> None:
        """Take the place of a running response whose client does not read."""
        self._credits[name].suspend()
        self._admission.stall(name, self._clock())
        self._sink.record(metrics.STALLED)
        self._decide()

    def unstall(self, name: GenerationId) -> None:
        """Queue a stalled response for a place, as its client reads again."""
        self._admission.unstall(name, self._clock())
        self._decide()

    def _decide(self) -> None:
        decisions = self._admission.decide(self._clock(), self._look())
        for admitted in decisions.admitted:
            waiting = self._waiting.pop(admitted.name)
            if not waiting.done():  # done: cancelled, and its task has not run its ``finally`` yet
                waiting.set_result(admitted)
        for refused in decisions.refused:
            waiting = self._waiting.pop(refused.name)
            self._sink.record(metrics.NOT_ADMITTED, slo_class=refused.slo.name, reason=refused.shortage.resource)
            if not waiting.done():
                waited = refused.waited_s >= _WAITED_S
                waiting.set_exception(NotAdmittedError(refused.message, refused.retry_after_s, waited))
        for name in decisions.suspended:
            self._credits[name].suspend()
            self._sink.record(metrics.SUSPENDED)
        for name in decisions.continued:
            self._credits[name].resume()
        self._decide_later()

    def _decide_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._admission.waiting:
            due_s = min(max(0.0, self._admission.due_at_s - self._clock()), _DECIDED_EVERY_S)
            self._timer = asyncio.get_running_loop().call_later(due_s, self._decide)


class _Reading:
    """Watches whether a response is read. It has one timer at most, and none while the client keeps up."""

    def __init__(self, admitting: AdmissionQueue, name: GenerationId) -> None:
        self._admitting, self._name = admitting, name
        self._timer: asyncio.TimerHandle | None = None
        self._stalled = False

    def on_behind(self, behind: bool) -> None:
        """Start or stop the timer; the callback of ``Credit.watch``."""
        self.over()
        if behind:
            self._timer = asyncio.get_running_loop().call_later(_STALLED_AFTER_S, self._stall)
        elif self._stalled:
            self._stalled = False
            self._admitting.unstall(self._name)

    def over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stall(self) -> None:
        self._timer, self._stalled = None, True
        self._admitting.stall(self._name)


def _asked(request: GenerationRequest, now_s: float) -> AdmissionRequest:
    return AdmissionRequest(
        name=request.generation,
        classes=(request.slo, *request.lower),
        prompt_tokens=len(request.prompt_ids) + len(request.output_ids),
        asked_at_s=now_s,
        most_tokens=float(request.max_tokens),
        first_token_s=request.first_token_s,
        resumed=request.ledger is not None,
        account=request.account,
        priority=request.priority,
    )
