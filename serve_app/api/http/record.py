"""What is logged of a request: ids and numbers, never content."""

import asyncio
import logging
import time
import traceback
from dataclasses import dataclass, field

from actors.ray_errors import cause_of
from outrider.events import event
from outrider.tracing.requests import RequestTrace
from serve_app.api.api_forms import ErrorWriter, openai_error_body
from serve_app.api.http_errors import ErrorAnswer, answer_for

_MAX_PATH_CHARS = 200
_STRANGERS_LINE_S = 1.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request since its arrival. The layers it passes add what they learn."""

    request_id: str  # the client's, or generated
    path: str  # of its URL
    status: int | None = None  # of HTTP, once answered
    error: str | None = None  # OpenAI's code of the error, if any
    left: bool = False  # whether the client disconnected
    trace: RequestTrace | None = None  # if it is sampled
    error_body: ErrorWriter = openai_error_body  # writes an error as the request's API does
    headers: dict[str, str] = field(default_factory=dict)  # of the answer, whatever it is
    facts: dict[str, object] = field(default_factory=dict)  # about the response: token counts and the like
    began_at_s: float = field(default_factory=time.monotonic)  # on the monotonic clock

    def answer_to(self, error: Exception) -> ErrorAnswer:
        """Return the answer to an error; log it if the client did not cause it."""
        answer = answer_for(error)
        self.error = answer.code
        if answer.status >= 500:
            event(
                log,
                "request_failed",
                logging.ERROR,
                **self._named(),
                code=answer.code,
                error=type(cause_of(error)).__name__,
                traceback="".join(traceback.format_exception(error)),
            )
        return answer

    @property
    def is_strangers(self) -> bool:
        """Whether it was refused and came without a valid key."""
        return self.status is not None and 400 <= self.status < 500 and "key" not in self.facts

    def ended(self) -> None:
        name = "request_cancelled" if self.left else "request_finished"
        seconds = round(time.monotonic() - self.began_at_s, 6)
        event(log, name, **self._named(), status=self.status, code=self.error, seconds=seconds, **self.facts)

    def _named(self) -> dict[str, str | None]:
        trace_id = None if self.trace is None else self.trace.context.trace_id
        return {"request_id": self.request_id, "path": self.path[:_MAX_PATH_CHARS], "trace_id": trace_id}


class RequestLog:
    """Log of one ingress. Refused requests without a valid key get one line per second, then a count."""

    def __init__(self) -> None:
        self._more: int | None = None  # refusals of the present second after the first

    def ended(self, record: RequestRecord) -> None:
        if not record.is_strangers:
            record.ended()
        elif self._more is None:
            self._more = 0
            asyncio.get_running_loop().call_later(_STRANGERS_LINE_S, self._summed_up)
            record.ended()
        else:
            self._more += 1

    def _summed_up(self) -> None:
        if self._more:
            event(log, "requests_refused", count=self._more)
        self._more = None
