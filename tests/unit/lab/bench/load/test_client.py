import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from math import inf
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
from lab.bench.load.plan import PlannedRequest, plan_load
from lab.bench.load.report import Answer, Usage

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 1},
}
CHAT = PlannedRequest(0.0, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
COMPLETION = PlannedRequest(0.0, "/v1/completions", {"prompt": "Hi", "max_tokens": 3})


class SmallService:
    """Streams "one two three" in two events, a chat behind its role's; ``model`` names what goes wrong.

    Args:
        hold_until: requests that must have arrived before any is answered.
    """

    def __init__(self, *, hold_until: int = 0) -> None:
        self._hold_until = hold_until
        self.bodies: list[dict[str, Any]] = []
        self._all_here = asyncio.Event()
        self._now = self.most = 0  # requests at a time

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
        if body["model"] == "busy":
            return JSONResponse({"error": {"code": "busy"}}, status_code=429)
        events = self._events(body["model"], chat="messages" in body)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _events(self, model: str, *, chat: bool) -> AsyncIterator[str]:
        self._now += 1
        self.most = max(self.most, self._now)
        if chat:
            yield _event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for text in ("one", " two three"):
            choice = {"delta": {"content": text}} if chat else {"text": text}
            yield _event({"choices": [{"index": 0, **choice}]})
            if model == "breaks":
                raise ConnectionAbortedError("as if the process had died")
            if model == "hangs":
                await asyncio.Event().wait()
        if model == "fails":
            yield _event({"error": {"code": "unavailable"}})
        elif model == "gibberish":
            yield _event({"choices": [{"nothing": "known"}]})
        elif model != "ends early":
            self._now -= 1
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
            return await send(Endpoint(client, model, timeout_s), request, time.perf_counter)

    return asyncio.run(once())


def run(url: str, plan: tuple[PlannedRequest, ...], max_concurrency: int | None = None) -> tuple[Answer, ...]:
    async def once() -> tuple[Answer, ...]:
        async with open_client(url, 60.0) as client:
            return await drive(Endpoint(client, "small", 60.0), plan, max_concurrency=max_concurrency)

    return asyncio.run(once())


def small_plan(requests: int, rate_per_s: float = 400.0) -> tuple[PlannedRequest, ...]:
    return plan_load([(CHAT.path, CHAT.body), (COMPLETION.path, COMPLETION.body)] * (requests // 2), rate_per_s, seed=1)


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
    assert len(answer.events_s) == 2
    assert answer.usage == Usage(prompt=7, output=3, cached=5, accepted=2, rejected=1)
    assert answer.sent_s <= answer.events_s[0] <= answer.events_s[1] <= answer.ended_s


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
    assert bool(answer.events_s) == (model != "busy")


def test_a_late_answer_is_a_timeout(url: str) -> None:
    assert ask(url, CHAT, "hangs", timeout_s=0.2).outcome == "timeout"


def test_no_connection_is_an_outcome_too(closed_port: int) -> None:
    answer = ask(f"http://127.0.0.1:{closed_port}", CHAT)
    assert (answer.outcome, answer.events_s) == ("unreachable", ())
    assert "ConnectError" in answer.detail


def test_requests_wait_for_no_answer() -> None:
    service = SmallService(hold_until=12)  # answers none before all have arrived
    plan = small_plan(12)
    with served(service) as address:
        answers = run(address, plan)
    assert [answer.outcome for answer in answers] == ["completed"] * 12
    assert [answer.path for answer in answers] == [request.path for request in plan]
    assert [answer.due_s for answer in answers] == [request.at_s for request in plan]
    assert all(answer.sent_s >= answer.due_s for answer in answers)


def test_no_more_requests_than_allowed_are_under_way() -> None:
    service = SmallService()
    with served(service) as address:
        answers = run(address, small_plan(12, inf), max_concurrency=2)
    assert [answer.outcome for answer in answers] == ["completed"] * 12
    assert service.most <= 2
    assert {answer.due_s for answer in answers} == {0.0}


def test_a_request_warms_a_service_up() -> None:
    async def once(url: str) -> Endpoint:
        async with open_client(url, 60.0) as client:
            return await endpoint_of(client, await served_model(client), 60.0)

    service = SmallService()
    with served(service) as address:
        assert asyncio.run(once(address)).model == "small"
    options = {"stream": True, "stream_options": {"include_usage": True}}
    assert service.bodies == [{"model": "small", "prompt": "Hi", "max_tokens": 4, **options}]


def test_the_command_prints_and_writes_every_rate(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "load.json"
    main(["--url", url, "--rate", "200", "300", "--requests", "4", "--window", "2", "--json", str(file)])
    printed = capsys.readouterr().out
    assert printed.startswith(f"small at {url}, mixed requests, seed 0\n============ Serving Benchmark Result")
    assert printed.count("Successful requests:                     4") == 2
    assert "Request rate configured (RPS):           300.00" in printed
    written = json.loads(file.read_text())
    assert (written["settings"]["rate"], written["settings"]["model"]) == ([200.0, 300.0], "small")
    assert "inter-token latency" in written["definitions"]
    assert [run["summary"]["completed"] for run in written["runs"]] == [4, 4]
    first, second = ([request["due_s"] for request in run["requests"]] for run in written["runs"])
    assert first != second
    assert all(request["usage"]["output"] == 3 for run in written["runs"] for request in run["requests"])


def test_the_command_speaks_the_options_of_vllm(tmp_path: Path) -> None:
    service, dataset, file = SmallService(), tmp_path / "sharegpt.json", tmp_path / "load.json"
    turns = [
        {"from": "human", "value": "Where does the river begin?"},
        {"from": "gpt", "value": "In the hills, I think."},
    ]
    dataset.write_text(json.dumps([{"conversations": turns}]))
    asked = {
        "random": ["--random-input-len", "6", "--random-output-len", "5"],
        "sharegpt": ["--dataset-path", str(dataset), "--sharegpt-output-len", "5", "--ignore-eos"],
    }
    with served(service) as address:
        for name, options in asked.items():
            service.bodies.clear()
            main(["--base-url", address, "--dataset-name", name, "--num-prompts", "3", "--json", str(file), *options])
            assert [body["max_tokens"] for body in service.bodies] == [4, 5, 5, 5]  # after a warm-up
            assert all(body["ignore_eos"] for body in service.bodies[1:])
            written = json.loads(file.read_text())
            assert (written["settings"]["rate"], written["runs"][0]["summary"]["completed"]) == (["inf"], 3)


def test_the_command_says_what_it_needs(url: str, closed_port: int) -> None:
    with pytest.raises(ServiceUnusableError, match="start one or pass --url"):
        main(["--url", f"http://127.0.0.1:{closed_port}"])
    with pytest.raises(ServiceUnusableError, match=r"found http_429: .*busy.*another --model"):
        main(["--url", url, "--model", "busy"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rate", "0"],
        ["--rate", "nan"],
        ["--rate", "inf"],
        ["--requests", "0"],
        ["--requests", "1", "--duration-s", "1"],
        ["--requests", "1", "--dataset-name", "sharegpt"],
        ["--random-range-ratio", "1"],
    ],
)
def test_a_meaningless_argument_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "needs" in capsys.readouterr().err or "--duration-s" in arguments
