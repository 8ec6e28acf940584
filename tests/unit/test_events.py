"""Events: one line of JSON each, with everything a reader needs and nothing in its way."""

import json
import logging
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.events import JsonLines, event, write_events

ROOTS = ("outrider", "actors", "serve_app", "cluster", "edge")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def a_logger() -> tuple[logging.Logger, StringIO]:
    """A logger of its own that writes into memory."""
    log, written = logging.Logger("serve_app.some_module"), StringIO()  # noqa: LOG001 (of no tree, so nobody listens)
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    return log, written


def lines(written: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().removesuffix("\n").split("\n")]


def test_an_event_is_one_line_with_time_level_logger_name_and_fields() -> None:
    log, written = a_logger()
    before = datetime.now(UTC).replace(microsecond=0)
    event(log, "drafter_lost", drafter="drafter-a-0", leases=3, wait_s=0.25)
    event(log, "drafter_refused", logging.ERROR, reason="of\ntwo lines")
    first, second = lines(written)
    assert before <= datetime.fromisoformat(first.pop("time")) <= datetime.now(UTC)
    assert first == {
        "level": "info",
        "logger": "serve_app.some_module",
        "event": "drafter_lost",
        "drafter": "drafter-a-0",
        "leases": 3,
        "wait_s": 0.25,
    }
    assert (second["level"], second["reason"]) == ("error", "of\ntwo lines")


@given(fields=st.dictionaries(st.text().filter(lambda key: key not in {"time", "level", "logger", "event"}), VALUES))
def test_whatever_the_fields_it_is_one_line_that_says_them(fields: dict[str, Any]) -> None:
    log, written = a_logger()
    event(log, "happened", **fields)
    (line,) = lines(written)
    assert line["event"] == "happened"
    told = {key: value for key, value in line.items() if key not in {"time", "level", "logger", "event"}}
    assert set(told) == {key for key, value in fields.items() if value is not None}
    for key, value in told.items():
        if isinstance(fields[key], bool | int | str):
            assert value == fields[key]


def test_values_json_does_not_know_are_text_and_none_is_left_out() -> None:
    log, written = a_logger()
    event(log, "happened", path=Path("a/b"), error=ValueError("why"), nothing=None, zero=0, empty="")
    (line,) = lines(written)
    assert (line["path"], line["error"], line["zero"], line["empty"]) == ("a/b", "why", 0, "")
    assert "nothing" not in line


def test_the_name_of_a_field_is_free() -> None:
    log, written = a_logger()
    event(log, "happened", name="n", msg="m", args="a", log="l")
    (line,) = lines(written)
    assert [line[key] for key in ("name", "msg", "args", "log")] == ["n", "m", "a", "l"]


def test_an_exception_becomes_a_field() -> None:
    log, written = a_logger()
    try:
        math.sqrt(-1)
    except ValueError:
        log.exception("beat_failed")
    (line,) = lines(written)
    assert (line["event"], line["level"]) == ("beat_failed", "error")
    assert line["traceback"].startswith("Traceback")
    assert "ValueError: " in line["traceback"]


def test_the_level_decides_what_is_written() -> None:
    log, written = a_logger()
    log.setLevel(logging.WARNING)
    event(log, "unimportant")
    event(log, "important", logging.WARNING)
    assert [line["event"] for line in lines(written)] == ["important"]


@pytest.fixture
def loggers_as_before() -> Iterator[None]:
    """What a process sets once, taken back."""
    loggers = [logging.getLogger(name) for name in ROOTS]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.mark.usefixtures("loggers_as_before")
def test_a_process_writes_every_packages_events_once(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ROOTS:
        logging.getLogger(name).handlers.clear()
    for _ in range(3):
        write_events()
    for name in ROOTS:
        event(logging.getLogger(f"{name}.module"), "happened", n=1)
    written = capsys.readouterr()
    assert [json.loads(line)["logger"] for line in written.err.splitlines()] == [f"{name}.module" for name in ROOTS]
    assert written.out == ""
