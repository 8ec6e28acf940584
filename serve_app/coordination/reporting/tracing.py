"""Traces sampled responses of a coordinator, and the passes of its verifier, each of which serves many responses."""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from actors.messages import StepReply
from outrider.contracts.errors import OutriderError
from outrider.contracts.requests import GenerationId, GenerationRequest
from outrider.contracts.tracing import read_traceparent
from outrider.scheduling.policy import StopReason
from outrider.tracing.responses import ResponseTrace
from outrider.tracing.spans import Emit, Ids, Span

_MOST_LINKS = 128  # of a pass's span: as many as OpenTelemetry allows

log = logging.getLogger(__name__)


class ResponseTraces:
    """Traces of the sampled responses: those whose request carries a trace context."""

    def __init__(
        self, emit: Emit, random_bits: Callable[[int], int], clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        """``clock`` is the coordinator's monotonic one, in seconds; ``wall`` returns Unix time."""
        self._emit, self._ids = emit, Ids(random_bits)
        self._clock, self._wall = clock, wall
        self._traced: dict[GenerationId, ResponseTrace] = {}

    @contextmanager
    def response(self, request: GenerationRequest) -> Iterator[ResponseTrace | None]:
        """Yield the response's trace, and end it with the context; None: the response is not sampled."""
        caller = read_traceparent(request.trace) if request.trace else None
        if caller is None:
            yield None
            return
        now_s, emit = self._clock(), self._emit
        trace = ResponseTrace(request, caller.context, now_s, self._wall() - now_s, self._ids, emit)
        self._traced[request.generation] = trace
        end, failed = "finished", None
        try:
            yield trace
        except (CancelledError, GeneratorExit):
            end = "cancelled"
            raise
        except Exception as error:
            end, failed = "failed", type(error).__name__
            if isinstance(error, OutriderError):
                failed = f"{failed}: {error}"
            raise
        finally:
            self._traced.pop(request.generation, None)
            trace.ended(self._clock(), end, failed)

    def stepped(self, reply: StepReply, predicted_s: float, reason: StopReason, now_s: float) -> None:
        """Emit a span for a step of the verifier, if it decided a block of a sampled response."""
        if not self._traced:
            return
        within = [outcome for outcome in reply.outcomes if outcome.generation in self._traced]
        if not within:
            return
        context = self._ids.root()
        links = [self._traced[outcome.generation].passed(outcome.round, context) for outcome in within]
        ended_at_s = self._wall() - self._clock() + now_s
        span = Span(
            "pass",
            context,
            None,
            ended_at_s - reply.engine_s,
            ended_at_s,
            attributes={
                "outrider.batch.blocks": len(reply.computed),
                "outrider.batch.rows": sum(cost.new_tokens for cost in reply.computed),
                "outrider.batch.stop_reason": str(reason),
                "outrider.batch.sampled": len(within),
                "outrider.predicted_s": predicted_s,
                "outrider.idle_s": reply.idle_s,
                "outrider.opening_s": reply.opening_s,
                "outrider.kv.used_blocks": reply.usage.used_blocks,
                "outrider.faults": tuple(map(str, reply.faults)),
            },
            links=tuple(links[:_MOST_LINKS]),
            error=None if not reply.faults else ", ".join(map(str, reply.faults)),
        )
        self._emit(span)
