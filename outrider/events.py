"""Structured logs: one line of JSON per event. Events carry ids and numbers, never a prompt or a response."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

_REFUSED = "log_lines_refused"
_ROOTS = ("outrider", "actors", "serve_app", "cluster", "edge")


def event(log: logging.Logger, name: str, level: int = logging.INFO, /, **fields: object) -> None:
    """Log an event, such as ``drafter_lost``, with what it concerns: ids, numbers and short reasons.

    Names are a closed set in snake case, so that logs can be counted by them. Values JSON does not know are written as
    text; None is left out.
    """
    log.log(level, name, extra={"fields": {key: value for key, value in fields.items() if value is not None}})


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: ``time``, ``level``, ``logger``, ``event``, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the line; a traceback becomes a field of it."""
        head: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line = head | getattr(record, "fields", {}) | head  # a field cannot replace what every line has
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return f"\n{text}" if record.msg == _REFUSED else text  # the last line before it may be a part of one


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream of which a full disk refuses some: the next one that fits is told how many.

    Some of these may still come, from the stream's buffer, or have come in part.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._lost = 0
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, behind one that tells how many were refused since the last."""
        if self._lost:
            lost, self._lost = self._lost, 0
            super().emit(_refused_lines(lost))
            if self._lost:  # still refused, and this line with it
                self._lost = lost + 1
                return
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's)
        """Of a stream that refuses a line nothing is written, as logging would do, to the same stream."""
        if isinstance(sys.exc_info()[1], OSError):
            self._lost += 1
        else:
            super().handleError(record)


def _refused_lines(count: int) -> logging.LogRecord:
    level = {"levelno": logging.ERROR, "levelname": logging.getLevelName(logging.ERROR)}
    return logging.makeLogRecord({"name": __name__, "msg": _REFUSED, "fields": {"lines": count}, **level})


def write_events() -> None:
    """Write this process's events to its standard error, which Ray keeps in a file per process. Repeatable."""
    for name in _ROOTS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, LineHandler) for handler in logger.handlers):
            logger.addHandler(LineHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
