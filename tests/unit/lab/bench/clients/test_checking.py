"""What clients' checks make of a service that says a fixed text."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn

from lab.bench.clients.asking.checking import Asked, NotTriedError, expect, outcome_of
from lab.bench.clients.asking.with_openai import CHECKS
from serve_app.api.http.routes import make_api
from tests.unit.serve_app.api.text_service import LIMITS, MODEL, TextService

NOBODY = Asked("", "", "", "")
# What a service that says one text whatever it is asked cannot do.
NEEDS_A_MODEL = {
    "chat with stop",
    "chat.completions.parse by a pydantic model",
    "chat.completions.stream by a pydantic model",
    "pydantic_function_tool, required, parsed",
    "a tool by name",
    "a tool, required",
    "a tool without parameters, required",
    "a tool by name, streamed",
    "the turn with a tool's result",
    "responses.parse by a pydantic model",
    "responses: a tool by name",
    "responses: a tool, required",
    "responses: a tool by name, streamed",
    "responses: the turn with a tool's result",
}
NEEDS_KEYS = {
    "a key that nobody has: AuthenticationError",
    "one response at a time: RateLimitError, Retry-After, retried",
}


@contextmanager
def served(service: TextService) -> Iterator[str]:
    config = uvicorn.Config(make_api(service), port=0, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join()


def test_openais_checks_tell_what_a_service_does_from_what_it_does_not() -> None:
    with served(TextService(limits=replace(LIMITS, tool_format="hermes"))) as url:
        asked = Asked(url, MODEL, "", "")
        rows = [outcome_of("openai", "0", done, check, asked) for done, check in CHECKS]
    assert {row.done for row in rows if row.outcome == "failed"} == NEEDS_A_MODEL
    assert {row.done for row in rows if row.outcome == "not tried"} == NEEDS_KEYS


def test_whatever_a_check_raises_is_its_outcome() -> None:
    def lacks(asked: Asked) -> None:  # noqa: ARG001 (interface)
        raise NotTriedError("needs a key")

    def fails(asked: Asked) -> None:
        expect(asked.key, "a key", asked.key)

    found = [outcome_of("c", "1", "it", check, NOBODY) for check in (lacks, fails, lambda _: None, lambda _: "3 s")]
    assert [(row.outcome, row.told) for row in found] == [
        ("not tried", "needs a key"),
        ("failed", "UnexpectedError: needs a key, found ''"),
        ("passed", ""),
        ("passed", "3 s"),
    ]
