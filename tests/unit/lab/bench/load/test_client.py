import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lab.bench.load.client import Endpoint, ServiceUnusableError, drive, endpoint_of, open_client, send, served_model
from lab.bench.load.command import main
from lab.bench.load.plan import LoadPlan, PlannedRequest, plan_load
from lab.bench.load.report import Answer, Event, Usage

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 1},
}
CHAT = PlannedRequest(0.0, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
COMPLETION = PlannedRequest(0.0, "/v1/completions", {"prompt": "Hi", "max_tokens": 3})


class SmallService:
    """Streams "one two three" in two events; ``model`` names what goes wrong. Counts tokens along if it may.

    Args:
        counts: whether it takes ``continuous_usage_stats``; else it refuses a request that asks for it.
        hold_until: requests that must have arrived before any is answered.
    """

    def __init__(self, *, counts: bool = True, hold_until: int = 0) -> None:
        self._counts = counts
        self._hold_until = hold_until
        self.bodies: list[dict[str, Any]] = []
        self._all_here = asyncio.Event()

    def app(self) -> Starlette:
        paths = ("/v1/chat/completions", "/v1/completions")
        posts = [Route(path, self._respond, methods=["POST"]) for path in paths]
        return Starlette(routes=[Route("/v1/models", self._models), *posts])

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "small", "object": "model"}]})

    async def _respond(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if len(self.bodies) >= self._hold_until:
            self._all_here.set()
        await self._all_here.wait()
        counting = "continuous_usage_stats" in body["stream_options"]
        if body["model"] == "busy":
            return JSONResponse({"error": {"code": "busy"}}, status_code=429)
        if counting and not self._counts:
            return JSONResponse({"error": {"code": "unsupported_parameter"}}, status_code=400)
        events = self._events(body["model"], chat="messages" in body, counting=counting)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _events(self, model: str, *, chat: bool, counting: bool) -> AsyncIterator[str]:
        for text, so_far in (("one", 1), (" two three", 3)):
            choice = {"delta": {"content": text}} if chat else {"text": text}
            usage = {"usage": USAGE | {"completion_tokens": so_far}} if counting else {}
            yield _event({"choices": [{"index": 0, **choice}]} | usage)
            if model == "breaks":
                raise ConnectionAbortedError("as if the process had died")
            if model == "hangs":
                await asyncio.Event().wait()
        if model == "fails":
            yield _event({"error": {"code": "unavailable"}})
        elif model == "gibberish":
            yield _event({"choices": [{"nothing": "known"}]})
        elif model != "ends early":
            yield _event({"choices": [], "usage": USAGE})
            yield "data: [DONE]\n\n"


def _event(content: object) -> str:
    return f"data: {json.dumps(content)}\n\n"


@contextmanager
def served(service: SmallService) -> Iterator[str]:
    """A real server on a free port; its socket listens before it starts, so that no client is too early."""
    config = uvicorn.Config(service.app(), port=0, log_config=None, log_level="critical", lifespan="off", ws="none")
    listener = config.bind_socket()
    listener.listen()
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def ask(url: str, request: PlannedRequest, model: str = "small", timeout_s: float = 60.0) -> Answer:
    async def once() -> Answer:
        async with open_client(url, timeout_s) as client:
            return await send(Endpoint(client, model, True, timeout_s), request, time.perf_counter)

    return asyncio.run(once())


def run(url: str, plan: LoadPlan, model: str, *, counting: bool = True) -> tuple[Answer, ...]:
    async def once() -> tuple[Answer, ...]:
        async with open_client(url, 60.0) as client:
            return await drive(Endpoint(client, model, counting, 60.0), plan)

    return asyncio.run(once())


def probe(url: str) -> tuple[str, bool]:
    async def once() -> tuple[str, bool]:
        async with open_client(url, 60.0) as client:
            model = await served_model(client)
            return model, (await endpoint_of(client, model, 60.0)).counting

    return asyncio.run(once())


def carried(events: tuple[Event, ...]) -> list[tuple[int, int | None]]:
    return [(event.chars, event.tokens_so_far) for event in events]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(SmallService()) as address:
        yield address


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as bound:  # bound, but not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("request_", [CHAT, COMPLETION])
def test_a_stream_is_read_to_its_end(url: str, request_: PlannedRequest) -> None:
    answer = ask(url, request_)
    assert (answer.outcome, answer.detail) == ("completed", "")
    assert carried(answer.events) == [(3, 1), (10, 3)]
    assert answer.usage == Usage(prompt=7, output=3, cached=5, accepted=2, rejected=1)
    assert answer.sent_s <= answer.events[0].at_s <= answer.events[1].at_s <= answer.ended_s


@pytest.mark.parametrize(
    ("model", "outcome", "detail"),
    [
        ("busy", "http_429", "busy"),
        ("breaks", "disconnected", "peer closed connection"),
        ("ends early", "disconnected", ""),
        ("fails", "error_event", "unavailable"),
        ("gibberish", "malformed", "text"),
    ],
)
def test_a_failure_is_an_outcome_and_keeps_what_came_before(url: str, model: str, outcome: str, detail: str) -> None:
    answer = ask(url, CHAT, model)
    assert answer.outcome == outcome
    assert detail in answer.detail
    assert carried(answer.events)[:1] == ([] if model == "busy" else [(3, 1)])


def test_a_late_answer_is_a_timeout(url: str) -> None:
    assert ask(url, CHAT, "hangs", timeout_s=0.2).outcome == "timeout"


def test_no_connection_is_an_outcome_too(closed_port: int) -> None:
    answer = ask(f"http://127.0.0.1:{closed_port}", CHAT)
    assert (answer.outcome, answer.events) == ("unreachable", ())
    assert "ConnectError" in answer.detail


def test_requests_wait_for_no_answer() -> None:
    service = SmallService(hold_until=12)  # answers none before all have arrived
    plan = plan_load(400.0, seed=(1,), max_tokens=8, requests=12)
    with served(service) as address:
        answers = run(address, plan, "small")
    assert [answer.outcome for answer in answers] == ["completed"] * 12
    assert [answer.path for answer in answers] == [request.path for request in plan.requests]
    assert [answer.due_s for answer in answers] == [request.at_s for request in plan.requests]
    assert all(answer.sent_s >= answer.due_s for answer in answers)


@pytest.mark.parametrize("counts", [True, False])
def test_running_counts_are_asked_for_where_they_are_taken(counts: bool) -> None:
    service = SmallService(counts=counts)
    plan = plan_load(400.0, seed=(2,), max_tokens=8, requests=3)
    with served(service) as address:
        assert probe(address) == ("small", counts)
        service.bodies.clear()
        answers = run(address, plan, "small", counting=counts)
    asked = {"include_usage": True} | ({"continuous_usage_stats": True} if counts else {})
    assert [body["stream_options"] for body in service.bodies] == [asked] * 3
    for answer in answers:
        assert carried(answer.events) == ([(3, 1), (10, 3)] if counts else [(3, None), (10, None)])


def test_the_command_prints_and_writes_every_rate(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "load.json"
    main(["--url", url, "--rate", "200", "300", "--requests", "4", "--window", "2", "--json", str(file)])
    printed = capsys.readouterr().out
    assert printed.startswith(f"small at {url}, seed 0, outputs of at most 128 tokens\n200 requests/s: offered 4 (")
    assert "\n300 requests/s: offered 4 (" in printed
    written = json.loads(file.read_text())
    assert (written["settings"]["rate"], written["settings"]["model"]) == ([200.0, 300.0], "small")
    assert "inter-token latency" in written["definitions"]
    assert [run["summary"]["completed"] for run in written["runs"]] == [4, 4]
    first, second = ([request["due_s"] for request in run["requests"]] for run in written["runs"])
    assert first != second
    assert all(request["usage"]["output"] == 3 for run in written["runs"] for request in run["requests"])


def test_the_command_says_what_it_needs(url: str, closed_port: int) -> None:
    with pytest.raises(ServiceUnusableError, match="start one or pass --url"):
        main(["--url", f"http://127.0.0.1:{closed_port}"])
    with pytest.raises(ServiceUnusableError, match=r"found http_429: .*busy.*another --model"):
        main(["--url", url, "--model", "busy"])


@pytest.mark.parametrize(
    "arguments", [["--rate", "0"], ["--rate", "nan"], ["--requests", "0"], ["--requests", "1", "--duration-s", "1"]]
)
def test_a_meaningless_argument_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "needs" in capsys.readouterr().err or "--duration-s" in arguments
