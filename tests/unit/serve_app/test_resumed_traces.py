"""A response that moves to another coordinator, as a real collector receives it from three senders: one trace."""

import random
from contextlib import aclosing
from dataclasses import replace

import pytest

from outrider.config.schema import TracingConfig
from outrider.contracts.errors import VerifierLostError
from outrider.contracts.tracing import SpanContext
from serve_app.api.http.record import RequestRecord
from serve_app.api.resumption import resumed
from serve_app.api.tracing import RequestTraces
from serve_app.coordination.reporting.tracing import ResponseTraces
from serve_app.otlp import SpanExport
from tests.collector import Collector, collecting
from tests.unit.serve_app.api.in_memory_service import Service, drafter, request_for, tokens_of, truth_of
from tests.unit.virtual_clock import now_s, on_loop

EPOCH_S = 1_764_000_000.0
CALLER = SpanContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
FAILS_AT_STEP = 6


def wall() -> float:
    return EPOCH_S + now_s()


def coordinator(export: SpanExport, seed: int) -> Service:
    return Service(drafter(), traces=ResponseTraces(export.emit, random.Random(seed).getrandbits, now_s, wall))


async def cannot_go_on() -> None:
    raise VerifierLostError("another coordinator can go on with it")


@on_loop
async def moved(ingress: SpanExport, first: Service, second: Service) -> None:
    """The first coordinator's verifier dies under a response, and the second goes on with it."""
    first.verifier.dies_before = {FAILS_AT_STEP}
    first.services = replace(first.services, await_verifier=cannot_go_on)
    coordinators = [first, second]
    traces = RequestTraces(ingress.emit, 0.0, random.Random(1).getrandbits, wall)
    _, trace = traces.begin({"traceparent": CALLER.traceparent()}, "POST", "/v1/completions")
    assert trace is not None
    request = replace(request_for(), trace=trace.context.traceparent())
    attempts = 0

    def on_resume() -> None:
        nonlocal attempts
        attempts += 1
        traces.resumed(request, attempts)

    making = resumed(request, lambda record: coordinators.pop(0).chunks(record), max_failures=3, on_resume=on_resume)
    async with aclosing(making) as chunks:
        assert tokens_of([chunk async for chunk in chunks]) == truth_of(request)
    traces.ended(trace, "/v1/completions", RequestRecord("r", "/v1/completions", status=200))
    await second.idle()


@pytest.fixture(scope="module")
def collector() -> Collector:
    """With all that comes of it."""
    with collecting() as collector:
        config = TracingConfig(enabled=True, endpoint=collector.url)
        exports = [SpanExport(config, name) for name in ("ingress i", "coordinator a", "coordinator b")]
        moved(exports[0], *(coordinator(export, seed) for seed, export in enumerate(exports[1:], start=2)))
        for export in exports:
            export.close()
    return collector


def test_it_is_one_trace_whose_parts_say_who_made_them_and_what_became_of_them(collector: Collector) -> None:
    (root,) = [span for span in collector.spans if span.parent_id == CALLER.span_id]
    assert (root.trace_id, root.resource["service.instance.id"]) == (CALLER.trace_id, "ingress i")
    (event,) = root.events
    assert event == ("response_resumed", {"outrider.generation": "g", "outrider.attempt": 1})
    first, second = collector.named(CALLER.trace_id, "generate")
    assert first.parent_id == second.parent_id == root.span_id
    assert [span.resource["service.instance.id"] for span in (first, second)] == ["coordinator a", "coordinator b"]
    assert (first.failed, second.failed, root.failed) == (True, False, False)
    assert (first.attributes["outrider.generation"], second.attributes["outrider.generation"]) == ("g", "g.1")
    assert first.ended_ns <= second.began_ns
    begun, rest = (int(str(span.attributes["outrider.tokens.committed"])) for span in (first, second))
    assert begun == int(str(second.attributes["outrider.tokens.resumed"])) > 0
    assert begun + rest == len(truth_of(request_for()))


def test_passes_of_either_verifier_and_the_rounds_in_them_name_each_other(collector: Collector) -> None:
    for response in collector.named(CALLER.trace_id, "generate"):
        ours = [span for span in collector.spans if span.resource == response.resource]
        passes = {span.span_id: span for span in ours if span.name == "pass"}
        named = {span_id for span in ours if span.name in {"verify", "stretch"} for _, span_id in span.links}
        assert named
        assert named <= set(passes), "of no other coordinator's verifier"
        for each in passes.values():
            assert each.trace_id != CALLER.trace_id
            assert set(each.links) == {(CALLER.trace_id, response.span_id)}
