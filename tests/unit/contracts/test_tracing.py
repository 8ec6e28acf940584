"""``traceparent`` as W3C Trace Context has it."""

import pytest

from outrider.contracts.tracing import Caller, SpanContext, read_traceparent, trace_id_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = SpanContext(TRACE, SPAN)


@pytest.mark.parametrize("sampled", [False, True])
def test_what_is_written_reads_back_the_same(*, sampled: bool) -> None:
    assert read_traceparent(CONTEXT.traceparent(sampled=sampled)) == Caller(CONTEXT, sampled)


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),  # the specification's own example
        (f" 00-{TRACE}-{SPAN}-00\t", False),
        (f"00-{TRACE}-{SPAN}-03", True),  # other flags stand beside it
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
    ],
)
def test_whoever_calls_says_whether_it_is_sampled(header: str, *, sampled: bool) -> None:
    assert read_traceparent(header) == Caller(CONTEXT, sampled)
    assert trace_id_of(header) == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n00-{TRACE}-{SPAN}-01",
    ],
)
def test_what_is_no_context_is_none(header: str) -> None:
    assert read_traceparent(header) is None
    assert trace_id_of(header) is None
