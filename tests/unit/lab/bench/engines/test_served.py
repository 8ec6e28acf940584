import asyncio
import json
import sys
import textwrap
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from lab.bench.engines.served import Load, chats, measured, read_drafted_and_accepted
from lab.bench.engines.servers import ServingOptions, all_servers
from lab.bench.harness.prompts import USUAL_SHARES, mixed
from lab.bench.harness.server import Arm, Server, ServerFailedError, started
from lab.bench.load.client import Endpoint, drive, open_client

OPTIONS = ServingOptions("embedded", "float32", 1, (1, 2), (2, 4), (None, 0))
# A server of OpenAI's API in a page: answers when so many requests are there, and names its model by the most it held.
SMALL = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

most, now, lock, together = 0, 0, threading.Lock(), threading.Barrier(int(sys.argv[2]))

class Handler(BaseHTTPRequestHandler):
    def answer(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):
        if self.path == "/metrics":
            self.answer("vllm:spec_decode_num_draft_tokens_total 8\\n", "text/plain")
        else:
            self.answer(json.dumps({"data": [{"id": f"most {most}"}]}))

    def do_POST(self):
        global most, now
        with lock:
            now += 1
            most = max(most, now)
        together.wait(30)
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usage = {"prompt_tokens": 1, "completion_tokens": said["max_tokens"]}
        events = [{"choices": [{"delta": {"content": "a"}}], "usage": usage}, "[DONE]"]
        with lock:
            now -= 1
        lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
        self.answer("".join(f"data: {line}\\n\\n" for line in lines), "text/event-stream")

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("listening", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    pass
"""


def small(folder: Path, *arms: Arm, together: int = 1) -> Server:
    script = folder / "small.py"
    script.write_text(textwrap.dedent(SMALL))
    return Server(
        "small", (sys.executable, str(script), "{port}", str(together)), "listening", {}, arms or (Arm("small"),)
    )


def test_a_load_is_run_on_every_server_and_a_dead_one_is_reported(tmp_path: Path) -> None:
    dead = Server("dead", (sys.executable, "-c", "raise SystemExit('no such model')"), "ready", {}, (Arm("dead"),))
    seen: list[str] = []
    arms = (Arm("a"), Arm("b", {"outrider": {"window": 0}}))
    load = Load(clients=(1, 3), requests=2, tokens=5, turns=2)
    samples = list(measured([small(tmp_path, *arms), dead], load, seen.append))
    assert [sample.arm for sample in samples] == seen == ["a", "b", "dead", "b", "dead", "a"] * 2
    assert [(sample.clients, sample.turn) for sample in samples] == [
        (clients, turn) for clients in (1, 3) for turn in (0, 1) for _ in range(3)
    ]
    for sample in samples:
        if sample.arm == "dead":
            assert not sample.values
            assert "exit status 1: no such model" in sample.failure
        else:
            assert sample.clients in load.clients
            assert sample.values["unanswered"] == 0
            assert min(sample.values["tokens_per_s"], sample.values["client_tokens_per_s"]) > 0
            assert sample.values["chat_tokens_per_s"] > 0
            assert not sample.failure


def test_a_server_ends_with_its_block(tmp_path: Path) -> None:
    with started(small(tmp_path), tmp_path / "log") as url:
        assert httpx.get(f"{url}/v1/models").is_success
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v1/models")


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = Server("vllm", (sys.executable, "-m", "no_such_module"), "ready", {}, ())
    with (
        pytest.raises(ServerFailedError, match=r"needs vllm to print 'ready', found exit status 1: .*no_such_module"),
        started(server, tmp_path / "log"),
    ):
        pytest.fail("it is not ready")


def test_a_server_that_lacks_something_is_not_started(tmp_path: Path) -> None:
    server = replace(small(tmp_path), lacks="needs a package")
    with (
        pytest.raises(ServerFailedError, match="not available: needs a package"),
        started(server, tmp_path / "log"),
    ):
        pytest.fail("it is not started")
    assert not (tmp_path / "log").exists()


def test_each_client_has_one_request_under_way(tmp_path: Path) -> None:
    async def run(url: str) -> list[str]:
        async with open_client(url, 30.0) as client:
            requests = chats(mixed(8, USUAL_SHARES), 3, "a", Arm("a"))
            answers = await drive(Endpoint(client, "m", 30.0), requests, max_concurrency=2)
            return [answer.outcome for answer in answers]

    with started(small(tmp_path, together=2), tmp_path / "log") as url:
        assert asyncio.run(run(url)) == ["completed"] * 8
        most = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
    assert most == "most 2"


def test_sessions_ask_the_same_with_another_beginning() -> None:
    asked = mixed(20, USUAL_SHARES)
    first = chats(asked, 8, "0.1", Arm("a", {"outrider": {"window": 0}}))
    second = chats(asked, 8, "0.2", Arm("b"))
    assert first[0].body["outrider"] == {"window": 0}
    begins = set()
    for one, other in zip(first, second, strict=True):
        assert one.kind == other.kind
        said, again = (json.loads(json.dumps(request.body["messages"])) for request in (one, other))
        assert said[1] == again[1]
        begins |= {said[0]["content"], again[0]["content"]}
        assert (one.body["max_tokens"], one.body["ignore_eos"], one.body["temperature"]) == (8, True, 0.0)
    assert len(begins) == 40


def test_above_temperature_0_every_turn_gets_the_same_seeds_where_seeds_are_taken() -> None:
    asked = mixed(6, USUAL_SHARES)
    first, second = (chats(asked, 8, session, Arm("a"), 0.7) for session in "ab")
    assert [one.body["seed"] for one in first] == [one.body["seed"] for one in second] == list(range(6))
    assert {one.body["temperature"] for one in first} == {0.7}
    assert not any("seed" in one.body for one in chats(asked, 8, "a", Arm("a", takes_seeds=False), 0.7))
    assert not any("seed" in one.body for one in chats(asked, 8, "a", Arm("a")))


def test_vllms_metrics_tell_drafted_and_accepted() -> None:
    page = """# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0"} 104.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 26.0
# TYPE other counter
other_total 3.0
"""
    assert read_drafted_and_accepted(page) == (104.0, 26.0)
    assert read_drafted_and_accepted("") == (0.0, 0.0)


def test_every_server_gets_the_same_model_and_its_own_port(tmp_path: Path) -> None:
    servers = all_servers(("torch", "vllm"), tmp_path / "target", tmp_path / "drafter", OPTIONS)
    assert [server.name for server in servers] == [
        "outrider torch",
        "outrider vllm",
        "vllm alone, 1 thread",
        "vllm draft_model, 2 tokens, 1 thread",
        "vllm draft_model, 4 tokens, 1 thread",
        "vllm alone, 2 threads",
        "vllm draft_model, 2 tokens, 2 threads",
        "vllm draft_model, 4 tokens, 2 threads",
    ]
    for server in servers:
        command = [part.format(port=4711) for part in server.command]
        assert "4711" in " ".join(command)
        assert "float32" in " ".join(command)
    speculating = [part.format(port=1) for part in servers[4].command]
    assert json.loads(speculating[speculating.index("--speculative-config") + 1]) == {
        "method": "draft_model",
        "model": str(tmp_path / "drafter"),
        "num_speculative_tokens": 4,
    }
    assert servers[5].environment["OMP_NUM_THREADS"] == "2"
    assert [arm.extra for arm in servers[0].arms] == [{}, {"outrider": {"window": 0}}]


def test_what_is_looked_up_is_a_cluster_of_its_own_and_vllm_has_its_own_ways(tmp_path: Path) -> None:
    options = replace(
        OPTIONS, central_threads=(1,), draft_tokens=(), lookups=(0, 8), ngram_tokens=(4,), suffix_tokens=(6,)
    )
    servers = {one.name: one for one in all_servers(("torch",), tmp_path / "target", tmp_path / "drafter", options)}
    assert list(servers) == [
        "outrider torch",
        "outrider torch, lookup 8",
        "vllm alone, 1 thread",
        "vllm ngram, 4 tokens, 1 thread",
        "vllm suffix, 6 tokens, 1 thread",
    ]
    assert "speculation.lookup_window=0" in servers["outrider torch"].command
    looking = servers["outrider torch, lookup 8"]
    assert "speculation.lookup_window=8" in looking.command
    assert [(arm.name, arm.extra) for arm in looking.arms] == [("outrider, torch, lookup 8", {})]
    command = [part.format(port=1) for part in servers["vllm ngram, 4 tokens, 1 thread"].command]
    assert json.loads(command[command.index("--speculative-config") + 1]) == {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }
    lacking = {name for name, one in servers.items() if one.lacks}
    assert lacking == (set() if find_spec("arctic_inference") else {"vllm suffix, 6 tokens, 1 thread"})
