"""Traces of responses that real engines make, without Ray: rounds, passes that several share, and faults."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from outrider.contracts.errors import GenerationFailedError
from outrider.contracts.requests import GenerationRequest
from outrider.tracing.spans import Ids, Span
from serve_app.coordination.reporting.tracing import ResponseTraces
from tests.unit.serve_app.api.in_memory_service import Service, drafter, request_for, tokens_of, truth_of
from tests.unit.virtual_clock import now_s, on_loop

IDS = Ids(random.Random(3).getrandbits)
EPOCH_S = 1_764_000_000.0


def traces_to(spans: list[Span]) -> ResponseTraces:
    return ResponseTraces(spans.append, random.Random(4).getrandbits, now_s, lambda: EPOCH_S + now_s())


def sampled(request: GenerationRequest) -> GenerationRequest:
    return replace(request, trace=IDS.root().traceparent())


def named(spans: Sequence[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


@on_loop
async def test_a_sampled_response_is_the_same_and_told_whole() -> None:
    spans, request = list[Span](), sampled(request_for())
    service = Service(drafter(), traces=traces_to(spans))
    assert tokens_of(await service.response(request)) == truth_of(request)
    await service.idle()
    (whole,) = named(spans, "generate")
    trace_id, span_id = request.trace.split("-")[1:3]
    assert (whole.context.trace_id, whole.parent_id) == (trace_id, span_id)
    parts = [span for span in spans if span.parent_id == whole.context.span_id]
    assert sum(int(str(span.attributes["outrider.tokens.committed"])) for span in parts) == len(truth_of(request))
    assert named(spans, "draft"), "a device has drafted"
    passes = {span.context for span in named(spans, "pass")}
    linked = {link.context for span in spans if span.name in {"verify", "stretch"} for link in span.links}
    assert linked == passes
    assert all(span.context.trace_id != trace_id for span in named(spans, "pass"))
    assert "drafter_leased" in [event.name for event in whole.events]


@on_loop
async def test_a_pass_links_to_all_that_are_sampled_and_to_nobody_else() -> None:
    spans = list[Span]()
    service = Service(traces=traces_to(spans))
    requests = [sampled(request_for("a")), sampled(request_for("b")), request_for("c")]
    await asyncio.gather(*(service.response(request) for request in requests))
    await service.idle()
    a, b = (span.context for span in named(spans, "generate"))
    assert max(len(span.links) for span in named(spans, "pass")) == 2
    assert {link.context for span in named(spans, "pass") for link in span.links} == {a, b}
    assert max(int(str(span.attributes["outrider.batch.blocks"])) for span in named(spans, "pass")) == 3


@on_loop
async def test_nothing_is_told_of_who_is_not_sampled() -> None:
    spans = list[Span]()
    service = Service(traces=traces_to(spans))
    assert tokens_of(await service.response(request_for())) == truth_of(request_for())
    await service.idle()
    assert not spans


@on_loop
async def test_a_verifier_that_is_lost_is_an_event_and_the_trace_goes_on() -> None:
    spans, request = list[Span](), sampled(request_for())
    service = Service(traces=traces_to(spans))
    service.verifier.dies_before = (3,)
    assert tokens_of(await service.response(request)) == truth_of(request)
    await service.idle()
    (whole,) = named(spans, "generate")
    assert "round_lost" in [event.name for event in whole.events]
    assert whole.error is None


@on_loop
async def test_a_response_that_fails_says_why_and_one_that_is_cancelled_is_no_error() -> None:
    spans = list[Span]()
    traces = traces_to(spans)
    with pytest.raises(GenerationFailedError), traces.response(sampled(request_for("a"))):
        raise GenerationFailedError("lost")
    with pytest.raises(asyncio.CancelledError), traces.response(sampled(request_for("b"))):
        raise asyncio.CancelledError
    failed, cancelled = spans
    assert (failed.attributes["outrider.end"], failed.error) == ("failed", "GenerationFailedError: lost")
    assert (cancelled.attributes["outrider.end"], cancelled.error) == ("cancelled", None)


@on_loop
async def test_a_verifier_is_told_the_trace_and_a_device_is_not() -> None:
    device = drafter()
    service = Service(device, traces=traces_to([]))
    request = sampled(request_for())
    await service.response(request)
    await service.idle()
    trace_ids = {opening.trace_id for call in service.verifier.calls for opening in call.openings}
    assert trace_ids == {request.trace.split("-")[1]}
    assert device.opened
    assert not any(opening.trace_id for opening in device.opened)
