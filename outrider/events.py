"""Structured logs: one line of JSON per event. Events carry ids and numbers, never a prompt or a response."""

import json
import logging
from datetime import UTC, datetime

_ROOTS = ("outrider", "actors", "serve_app", "cluster")


def event(log: logging.Logger, name: str, level: int = logging.INFO, /, **fields: object) -> None:
    """Log an event, such as ``drafter_lost``, with what it concerns.

    Args:
        log: of the module.
        name: what happened, in snake case; closed set, so that logs can be counted by it.
        level: of ``logging``.
        **fields: ids, numbers and short reasons. Values JSON does not know are written as text; None is left out.
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
        return json.dumps(line, ensure_ascii=False, default=str)


def write_events() -> None:
    """Write this process's events to its standard error, which Ray keeps in a file per process. Repeatable."""
    for name in _ROOTS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler.formatter, JsonLines) for handler in logger.handlers):
            handler = logging.StreamHandler()
            handler.setFormatter(JsonLines())
            logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
