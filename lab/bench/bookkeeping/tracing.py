"""Cost of tracing: off, on with nothing sampled, and on with everything sampled, in turn in one process.

A token's figure is that of a coordinator in this process, with a verifier that neither sleeps nor computes; a request's
is that of an ingress's outer layer, with an unknown path. Spans go to a collector in a process of its own, which
discards them; sending them is included.
"""

import asyncio
import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from starlette.types import Message as AsgiMessage

from actors.start import started
from cluster.reports.tables import show_table
from lab.bench.bookkeeping.ingress import api_over_nothing
from lab.bench.bookkeeping.recording import WakefulVerifier
from lab.bench.bookkeeping.responses import generations_over, make
from outrider.config.schema import TracingConfig
from outrider.contracts.requests import GenerationChunk, GenerationId
from outrider.tracing.spans import Ids
from serve_app.api.tracing import RequestTraces
from serve_app.coordination.reporting.tracing import ResponseTraces
from serve_app.spans import SpanSink, span_sink

OFF, UNSAMPLED, SAMPLED = "off", "on, nobody sampled", "on, everybody sampled"
ARMS = (OFF, UNSAMPLED, SAMPLED)
_PATH = "/nowhere"


@dataclass(frozen=True, slots=True)
class TracingCost:
    """One run of one arm, in CPU seconds of this process."""

    arm: str
    token_s: float
    request_s: float


def measured(sequences: int, tokens: int, requests: int, repeats: int) -> list[list[TracingCost]]:
    """Run the arms in turn: ``sequences`` concurrent responses of ``tokens`` tokens, then ``requests`` requests."""
    with _collector() as url:
        sink = span_sink(TracingConfig(enabled=True, endpoint=url), "bench")
        assert sink is not None, "it is enabled"
        found: dict[str, list[TracingCost]] = {arm: [] for arm in ARMS}
        for run in range(repeats + 1):
            for arm in (*ARMS[run % len(ARMS) :], *ARMS[: run % len(ARMS)]):
                token_s = asyncio.run(_per_token(arm, sink, sequences, tokens))
                request_s = asyncio.run(_per_request(arm, sink, requests))
                if run:  # the first is a warm-up
                    found[arm].append(TracingCost(arm, token_s, request_s))
        sink.close()
    return list(found.values())


def show(found: list[list[TracingCost]]) -> None:
    """Print a table: the median of each arm's runs, minimum and maximum in brackets."""
    rows = []
    for runs in found:
        tokens, requests = ([1e6 * getattr(run, name) for run in runs] for name in ("token_s", "request_s"))
        cells = (f"{median(each):.1f} ({min(each):.1f} to {max(each):.1f})" for each in (tokens, requests))
        rows.append((runs[0].arm, *cells))
    show_table("Tracing", ("", "us of CPU a token", "us of CPU a request"), rows)


async def _per_token(arm: str, sink: SpanSink, sequences: int, tokens: int) -> float:
    traces = None if arm == OFF else ResponseTraces(sink.emit, random.getrandbits, time.monotonic, time.time)
    generations = generations_over(WakefulVerifier(lambda: None), sequences, traces)
    ids, made = Ids(random.getrandbits), 0

    def put(name: GenerationId, chunk: GenerationChunk) -> None:  # noqa: ARG001
        nonlocal made
        made += len(chunk.token_ids)

    def carried() -> str:
        return ids.root().traceparent() if arm == SAMPLED else ""

    names = [str(number) for number in range(sequences)]
    started()
    began_cpu_s = time.process_time()
    await make(generations, names, tokens, put, carried)
    cpu_s = time.process_time() - began_cpu_s
    generations.batcher.stop()
    return cpu_s / made


async def _per_request(arm: str, sink: SpanSink, requests: int) -> float:
    ratio = 1.0 if arm == SAMPLED else 0.0
    traces = None if arm == OFF else RequestTraces(sink.emit, ratio, random.getrandbits, time.time)
    api, scope = api_over_nothing(traces, _PATH)
    started()
    began_cpu_s = time.process_time()
    for _ in range(requests):
        await api(dict(scope), _receive, _send)
    return (time.process_time() - began_cpu_s) / requests


async def _receive() -> AsgiMessage:
    return {"type": "http.request", "body": b"{}"}


async def _send(message: AsgiMessage) -> None: ...


class _Taking(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read the request and answer."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


def _collect(port: Connection) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Taking)
    port.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def _collector() -> Iterator[str]:
    """Run the collector while the block is open; yields its address."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_collect, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()
