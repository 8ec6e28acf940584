"""What is logged of a request: ids and numbers, never what was said."""

import logging
import time
import traceback
from dataclasses import dataclass, field

from actors.ray_errors import cause_of
from outrider.events import event
from outrider.tracing.requests import RequestTrace
from serve_app.api.http_errors import ErrorAnswer, answer_for

_MAX_PATH_CHARS = 200

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request, from its arrival on. The layers it passes add what they learn."""

    request_id: str  # the client's, or one made for it
    path: str  # of its URL
    status: int | None = None  # of HTTP, once answered
    error: str | None = None  # OpenAI's code of the error it was told of, if any
    left: bool = False  # whether the client went away
    trace: RequestTrace | None = None  # if it is sampled
    facts: dict[str, object] = field(default_factory=dict)  # of the response: token counts and the like
    began_at_s: float = field(default_factory=time.monotonic)  # on the monotonic clock

    def answer_to(self, error: Exception) -> ErrorAnswer:
        """The answer to an error; what the client did not cause is logged."""
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

    def ended(self) -> None:
        """Log that it is over."""
        name = "request_cancelled" if self.left else "request_finished"
        seconds = round(time.monotonic() - self.began_at_s, 6)
        event(log, name, **self._named(), status=self.status, code=self.error, seconds=seconds, **self.facts)

    def _named(self) -> dict[str, str | None]:
        trace_id = None if self.trace is None else self.trace.context.trace_id
        return {"request_id": self.request_id, "path": self.path[:_MAX_PATH_CHARS], "trace_id": trace_id}
