"""The trace of one response: its rounds in turn, autonomous runs told together, bounded whatever happens."""

import random
from dataclasses import replace
from itertools import pairwise

from outrider.contracts.requests import GenerationRequest, SamplingParams
from outrider.rounds.timing import RoundTiming
from outrider.tracing.responses import MOST_TOGETHER, ResponseTrace
from outrider.tracing.spans import Ids, Span, SpanKind

IDS = Ids(random.Random(1).getrandbits)
ROOT = IDS.root()
REQUEST = GenerationRequest("g", (1, 2, 3), SamplingParams(), max_tokens=8, request_id="r", trace=ROOT.traceparent())
EPOCH_S = 1_764_000_000.0
ALONE = RoundTiming(None, 0, 0, 1, 0.0, 0.0, queue_s=0.01, verify_s=0.02, total_s=0.03)
DRAFTED = replace(ALONE, protocol="token_ids", drafted_tokens=4, accepted_tokens=2, committed_tokens=3, draft_s=0.001)


def begun() -> tuple[ResponseTrace, list[Span]]:
    told = list[Span]()
    return ResponseTrace(REQUEST, ROOT, 10.0, EPOCH_S, IDS, told.append), told


def test_a_response_is_told_last_and_holds_what_came_before() -> None:
    trace, told = begun()
    trace.admitted(10.5)
    trace.round(ALONE, 11.0)
    trace.happened("drafter_leased", 11.5, drafter="edge-0")
    trace.round(replace(DRAFTED, number=1), 12.0)
    trace.ended(12.5, "finished")
    *inner, whole = told
    assert [span.name for span in inner] == [
        "admission",
        "round",
        "queue",
        "verify",
        "round",
        "downlink",
        "draft",
        "uplink",
        "queue",
        "verify",
    ]
    assert (whole.name, whole.kind, whole.remote) == ("generate", SpanKind.SERVER, True)
    assert (whole.context.trace_id, whole.parent_id) == (ROOT.trace_id, ROOT.span_id)
    assert (whole.began_at_s, whole.ended_at_s) == (EPOCH_S + 10.0, EPOCH_S + 12.5)
    assert all(whole.began_at_s <= span.began_at_s <= span.ended_at_s <= whole.ended_at_s for span in inner)
    assert [span.name for span in inner if span.parent_id == whole.context.span_id] == ["admission", "round", "round"]
    assert [event.name for event in whole.events] == ["first_token", "drafter_leased"]
    said = whole.attributes
    assert (said["outrider.rounds"], said["outrider.tokens.committed"]) == (2, 4)
    assert (said["outrider.tokens.drafted"], said["outrider.tokens.accepted"]) == (4, 2)
    assert (said["outrider.request_id"], said["outrider.end"], whole.error) == ("r", "finished", None)
    assert len({span.context.span_id for span in told}) == len(told)


def test_rounds_that_follow_by_themselves_are_told_together_and_not_without_end() -> None:
    trace, told = begun()
    passes = {}
    for number in range(2 * MOST_TOGETHER + 5):
        passes[number] = IDS.root()
        link = trace.passed(number, passes[number])
        assert link.context == trace.context
        trace.round(replace(ALONE, number=number, follows=True), 11.0 + number)
    trace.round(replace(DRAFTED, number=1000), 1000.0)
    autonomous_runs = [span for span in told if span.name == "stretch"]
    assert [span.attributes["outrider.rounds"] for span in autonomous_runs] == [MOST_TOGETHER, MOST_TOGETHER, 5]
    assert [link.context for span in autonomous_runs for link in span.links] == list(passes.values())
    assert all(first.ended_at_s <= then.began_at_s for first, then in pairwise(autonomous_runs))
    assert told.index(autonomous_runs[-1]) < [span.name for span in told].index("round")


def test_a_autonomous_run_that_a_response_ends_in_is_told() -> None:
    trace, told = begun()
    trace.round(replace(ALONE, follows=True), 11.0)
    trace.ended(12.0, "failed", "RequestFailedError: no")
    assert [span.name for span in told] == ["stretch", "generate"]
    assert told[-1].error == "RequestFailedError: no"


def test_what_is_kept_of_rounds_that_never_come_is_bounded() -> None:
    trace, told = begun()
    for number in range(10_000):
        trace.passed(number, IDS.root())
        trace.happened("round_lost", 11.0)
    trace.round(replace(ALONE, number=0), 11.0)
    assert not told[-1].links, "forgotten"
    trace.round(replace(ALONE, number=9_999), 11.0)
    assert len(told[-1].links) == 1
    trace.ended(12.0, "finished")
    assert len(told[-1].events) < 200


def test_no_span_begins_before_its_response() -> None:
    trace, told = begun()
    trace.round(replace(ALONE, total_s=5.0), 11.0)
    assert min(span.began_at_s for span in told) == EPOCH_S + 10.0
