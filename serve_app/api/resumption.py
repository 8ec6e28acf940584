"""How a response continues when its coordinator is lost.

The ingress keeps a resume record, a ``GenerationRequest`` that grows with every chunk received. Another coordinator
continues from the record behind the last received token: tokens that the first one committed but did not deliver are
chosen again. At temperature 0 and with shared noise they are the same, as every token is a function of its prefix and
the request; ratio protocols draw them from the same distribution.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ray.exceptions import RayError, RayTaskError, TaskCancelledError, UnserializableException
from ray.serve.exceptions import BackPressureError, RayServeException

from actors.ray_errors import cause_of
from outrider.contracts.errors import (
    BusyError,
    GenerationFailedError,
    OtherTargetError,
    RequestFailedError,
    VerifierAwayError,
    VerifierLostError,
)
from outrider.contracts.requests import GenerationChunk, GenerationRequest
from outrider.contracts.slo import SloClass
from outrider.contracts.tracing import trace_id_of
from outrider.events import event
from outrider.routing.resuming import PAUSE_SPREAD, pause_s

_MOST_LOSSES = 3
_NO_LOSS = (BusyError, BackPressureError, VerifierAwayError)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Sent:
    token_ids: list[int] = field(default_factory=list)
    last: GenerationChunk | None = None
    granted: SloClass | None = None
    target: str = ""

    def take(self, chunk: GenerationChunk) -> None:
        self.token_ids += chunk.token_ids
        self.last = chunk
        self.granted = self.granted or chunk.granted
        self.target = self.target or chunk.target

    def advance(self, record: GenerationRequest) -> GenerationRequest:
        """Return the record of the next attempt: behind what this one has sent."""
        if self.last is None:
            return record
        behind = advanced(record, self.token_ids, self.last)
        return replace(behind, slo=self.granted or record.slo, lower=(), target=self.target or record.target)


async def resumed(
    request: GenerationRequest,
    attempt: Callable[[GenerationRequest], AsyncGenerator[GenerationChunk, None]],
    *,
    max_failures: int,
    on_resume: Callable[[], None],
    pause: Callable[[float], Awaitable[None]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[GenerationChunk, None]:
    """Make a response by as many attempts as it takes. Closing the generator closes the attempt in progress.

    Args:
        request: the response to make.
        attempt: asks some coordinator to continue from a record.
        max_failures: in a row, without a chunk between them.
        on_resume: called before each attempt but the first.
        pause: sleeps; by default with jitter, as a lost coordinator's responses all return at once.
        clock: monotonic, in seconds.

    Raises:
        Exception: the last attempt's error, if nobody may resume after it or ``max_failures`` is exceeded.
    """
    record, attempts, failures, losses, finished, last_at_s = request, 0, 0, 0, False, clock()
    while True:
        failure: Exception = GenerationFailedError(f"{record.generation} ended without a finish reason")
        sent = _Sent()
        try:
            async with aclosing(attempt(record)) as chunks:
                async for chunk in chunks:
                    sent.take(chunk)
                    failures, losses, last_at_s = 0, 0, clock()
                    finished = chunk.finish_reason is not None
                    yield chunk
        except Exception as error:  # noqa: BLE001 (classified below)
            failure = error
        if finished:
            return  # if the coordinator was lost then, it had sent everything
        record = sent.advance(record)
        failures += 1
        losses += not isinstance(cause_of(failure), _NO_LOSS)
        within = failures <= most_failures(failure, max_failures) and losses <= most_losses(failure)
        if not within or not may_resume(failure, begun=bool(record.stats.rounds)):
            raise failure
        attempts += 1
        _log_resumed(record, attempts, failure)
        on_resume()
        await (pause or _about)(pause_s(failures))
        now_s = clock()
        record = next_attempt(record, request.generation, attempts, now_s - last_at_s)
        last_at_s = now_s


def _log_resumed(record: GenerationRequest, attempt: int, failure: Exception) -> None:
    event(
        log,
        "response_resumed",
        logging.WARNING,
        request_id=record.request_id,
        generation=record.generation,
        trace_id=trace_id_of(record.trace),
        attempt=attempt,
        tokens=len(record.output_ids),
        reason=type(cause_of(failure)).__name__,
    )


def advanced(record: GenerationRequest, received: Sequence[int], last: GenerationChunk) -> GenerationRequest:
    """Extend the record by received tokens, the last of them from ``last``."""
    return replace(
        record,
        output_ids=(*record.output_ids, *received),
        stats=last.stats,
        correction_by=last.correction_by,
        ledger=last.ledger,
    )


def next_attempt(record: GenerationRequest, name: str, attempt: int, gap_s: float) -> GenerationRequest:
    """The record under a new generation id, so that leftovers of the old one cannot be mistaken for it.

    ``gap_s`` is the time since its last chunk; it counts against the promised speed.
    """
    ledger = None if record.ledger is None else record.ledger.delayed(gap_s)
    return replace(record, generation=f"{name}.{attempt}", ledger=ledger)


def may_resume(error: Exception, *, begun: bool) -> bool:
    """Whether another coordinator, or the same one later, may continue the response.

    Args:
        error: that ended the stream.
        begun: whether the client has received anything. Until then an overload is reported to it; afterwards the
            response waits for a place.
    """
    cause = cause_of(error)
    if isinstance(cause, BusyError | BackPressureError):
        return begun
    if isinstance(cause, RequestFailedError):
        return False  # it would fail there as well, and cost others their verifier
    if isinstance(cause, VerifierLostError | VerifierAwayError | OtherTargetError | GenerationFailedError):
        return True
    if isinstance(cause, RayTaskError | UnserializableException) or type(cause) is RayError:
        return False  # the coordinator is well, and failed at this request with an error that cannot be pickled
    if isinstance(cause, TaskCancelledError):
        return False  # no client waits for it any more
    return isinstance(cause, RayError | RayServeException)


def most_failures(error: Exception, max_failures: int) -> float:
    """Limit of consecutive failures.

    A full coordinator does not count: deadlines bound how long a response waits.
    """
    return float("inf") if isinstance(cause_of(error), BusyError | BackPressureError) else max_failures


def most_losses(error: Exception) -> float:
    """Limit of consecutive losses: others might lose their verifiers to the same request.

    A coordinator that started nothing, as it is full or without a verifier, lost none to it. If the target was
    replaced, perhaps no coordinator has the old one any more.
    """
    lost = VerifierLostError | OtherTargetError | GenerationFailedError
    return _MOST_LOSSES if isinstance(cause_of(error), lost) else float("inf")


async def _about(seconds: float) -> None:
    await asyncio.sleep(seconds * random.uniform(1.0 - PAUSE_SPREAD, 1.0 + PAUSE_SPREAD))  # noqa: S311 (nothing to guess)
