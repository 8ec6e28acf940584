"""Traces of a running service, as a collector receives them: those that callers ask for, and nothing of others."""

import secrets

import httpx
import pytest

from tests.cluster.served import MODEL, PLAIN, Service, eventually
from tests.collector import SERVER, Collector, Received

TOKENS = 48
CALLER = "00f067aa0ba902b7"
WITHIN_S = 60.0
CHAT = "/v1/chat/completions"
PHASES = {"downlink", "draft", "uplink", "queue", "verify"}


def asked(service: Service, trace_id: str | None, flags: str, **more: object) -> httpx.Response:
    """One response, of which devices draft, for a caller of this trace."""
    message = {"role": "user", "content": "Name the seven days of the week, and then the twelve months of the year."}
    body = {"model": MODEL, "messages": [message], "max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True}
    headers = {} if trace_id is None else {"traceparent": f"00-{trace_id}-{CALLER}-{flags}"}
    url, choice = f"{service.url}{CHAT}", {"outrider": {"window": 3}}
    response = httpx.post(url, json={**body, **choice, **more}, headers=headers, timeout=300, verify=PLAIN)
    assert response.status_code == httpx.codes.OK, response.text
    return response


def received(collector: Collector, trace_id: str, responses: int = 1) -> list[Received]:
    """The trace, once ingress and coordinator have sent their parts: each tells its first span last."""

    def complete() -> bool:
        spans = collector.trace(trace_id)
        whole = sum(span.name == "generate" for span in spans) == responses and any(by_caller(span) for span in spans)
        return whole and passes_of(spans) <= {span.span_id for span in list(collector.spans)}

    eventually(complete, WITHIN_S)
    return collector.trace(trace_id)


def by_caller(span: Received) -> bool:
    """Whether it is our first."""
    return span.parent_id == CALLER


def passes_of(spans: list[Received]) -> set[str]:
    """That a response's rounds link to."""
    return {span_id for span in spans if span.name in {"verify", "stretch"} for _, span_id in span.links}


@pytest.fixture(scope="module")
def trace(service: Service, collector: Collector) -> list[Received]:
    """Of one response, whose caller has it sampled."""
    eventually(lambda: bool(service.drafters("ready")), WITHIN_S)
    trace_id = secrets.token_hex(16)
    for _ in range(20):  # a device may be leased too late for a response as short as this
        response = asked(service, trace_id, "01")
        assert response.headers["traceparent"].split("-")[1::2] == [trace_id, "01"]
        spans = received(collector, trace_id)
        if any(span.name == "draft" for span in spans):
            break
        trace_id = secrets.token_hex(16)
    (root,) = [span for span in spans if by_caller(span)]
    assert response.headers["traceparent"].split("-")[2] == root.span_id
    return spans


def test_a_request_is_one_tree_below_its_caller(trace: list[Received]) -> None:
    ours = {span.span_id for span in trace}
    (root,) = [span for span in trace if span.parent_id not in ours]
    assert (root.name, root.kind, root.parent_id) == (f"POST {CHAT}", SERVER, CALLER)
    assert not any(span.failed for span in trace)
    said = root.attributes
    assert said["http.route"] == said["url.path"] == CHAT
    assert said["http.response.status_code"] == httpx.codes.OK
    assert (said["gen_ai.operation.name"], said["gen_ai.request.model"]) == ("chat", MODEL)
    assert (said["gen_ai.usage.output_tokens"], said["gen_ai.response.finish_reasons"]) == (TOKENS, ("length",))
    (response,) = [span for span in trace if span.name == "generate"]
    assert (response.parent_id, response.kind) == (root.span_id, SERVER)
    assert response.within(root)
    assert {span.resource["service.name"] for span in trace} == {"outrider"}
    processes = {span.resource["service.instance.id"] for span in (root, response)}
    assert sorted(str(each).split()[0] for each in processes) == ["coordinator", "ingress"]


def test_rounds_lie_in_their_response_and_phases_in_their_round(trace: list[Received]) -> None:
    by_id = {span.span_id: span for span in trace}
    (response,) = [span for span in trace if span.name == "generate"]
    steps = [span for span in trace if span.parent_id == response.span_id]
    assert {span.name for span in steps} <= {"admission", "round", "stretch"}
    assert all(span.within(response) for span in steps)
    committed = [span.attributes["outrider.tokens.committed"] for span in steps if span.name != "admission"]
    assert sum(int(str(tokens)) for tokens in committed) == TOKENS
    phases = [span for span in trace if by_id.get(span.parent_id, response).name == "round"]
    assert {span.name for span in phases} == PHASES
    assert all(span.within(by_id[span.parent_id]) for span in phases)
    for drafted in (span for span in phases if span.name == "draft"):
        down, device, up = (
            next(span for span in phases if (span.parent_id, span.name) == (drafted.parent_id, name))
            for name in ("downlink", "draft", "uplink")
        )
        assert down.ended_ns == device.began_ns
        assert device.ended_ns == up.began_ns
    assert len(steps) + len(phases) + 2 == len(trace), "nothing else is told of it"


def test_a_round_and_the_pass_it_was_part_of_name_each_other(trace: list[Received], collector: Collector) -> None:
    (response,) = [span for span in trace if span.name == "generate"]
    assert all(span.links for span in trace if span.name in {"verify", "stretch"})
    passes = [span for span in collector.spans if span.span_id in passes_of(trace)]
    assert passes
    for each in passes:
        assert (each.name, each.parent_id) == ("pass", "")
        assert each.trace_id != response.trace_id
        assert (response.trace_id, response.span_id) in each.links


def test_a_pass_serves_several_responses(service: Service, collector: Collector) -> None:
    trace_id = secrets.token_hex(16)
    asked(service, trace_id, "01", n=2)
    spans = received(collector, trace_id, responses=2)
    assert sum(map(by_caller, spans)) == 1
    passes = [span for span in collector.spans if span.span_id in passes_of(spans)]
    assert max(len(set(each.links)) for each in passes) == 2


def test_a_stream_has_its_trace_in_its_head(service: Service, collector: Collector) -> None:
    trace_id = secrets.token_hex(16)
    response = asked(service, trace_id, "01", stream=True)
    assert response.text.endswith("data: [DONE]\n\n")
    assert response.headers["traceparent"].split("-")[1] == trace_id
    received(collector, trace_id)


def test_what_is_not_sampled_leaves_nothing(service: Service, collector: Collector) -> None:
    unsampled, sampled = secrets.token_hex(16), secrets.token_hex(16)
    before = len(collector.spans)
    assert asked(service, unsampled, "00").headers["traceparent"].split("-")[1::2] == [unsampled, "00"]
    assert "traceparent" not in asked(service, None, "").headers
    asked(service, sampled, "01")  # spans leave in order: whatever there was of the others would have left before
    spans = received(collector, sampled)
    new = collector.spans[before:]
    assert {span.trace_id for span in new if span.name != "pass"} == {sampled}
    assert {trace_id for span in new for trace_id, _ in span.links if span.name == "pass"} == {sampled}
    assert passes_of(spans) == {span.span_id for span in new if span.name == "pass"}
    assert not service.events("request_finished", trace_id=unsampled)


def test_lines_of_the_log_name_the_trace(service: Service, trace: list[Received]) -> None:
    (trace_id,) = {span.trace_id for span in trace}
    (root,) = [span for span in trace if by_caller(span)]
    (line,) = service.events("request_finished", trace_id=trace_id)
    assert line["request_id"] == root.attributes["outrider.request_id"]
    for name in ("generation_started", "generation_finished"):
        (line,) = service.events(name, trace_id=trace_id)
        assert line["request_id"] == root.attributes["outrider.request_id"]
