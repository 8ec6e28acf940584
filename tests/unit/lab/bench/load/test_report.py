from dataclasses import astuple, replace
from itertools import accumulate
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.load.report import (
    COMPLETED,
    REFUSED,
    Answer,
    Latencies,
    Usage,
    as_json,
    as_text,
    kept_shares,
    latencies_of,
    request_tokens_per_s,
    summarise,
    times_s,
)

DONE = Answer(
    path="/v1/chat/completions",
    due_s=1.0,
    sent_s=1.25,
    ended_s=3.0,
    outcome="completed",
    events_s=(1.75, 2.5, 2.75),
    usage=Usage(prompt=10, output=5, cached=4, accepted=2, rejected=6),
)


def test_times_of_a_request_are_those_of_vllm() -> None:
    assert times_s(DONE) == {"ttft": [0.5], "tpot": [(1.5 - 0.5) / 4], "itl": [0.75, 0.25], "e2el": [1.5]}


def test_a_single_token_has_no_time_per_output_token() -> None:
    answer = replace(DONE, events_s=(1.75,), usage=Usage(prompt=10, output=1))
    assert times_s(answer) == {"ttft": [0.5], "tpot": [], "itl": [], "e2el": [0.5]}
    assert not any(times_s(replace(DONE, events_s=())).values())


@given(gaps=st.lists(st.floats(0.001, 10.0), min_size=1, max_size=8), tokens_per_event=st.integers(1, 5))
def test_times_of_a_request_fit_together(gaps: list[float], tokens_per_event: int) -> None:
    output = 1 + tokens_per_event * len(gaps)
    events_s = tuple(accumulate(gaps, initial=1.0))
    found = times_s(Answer("/", 0.0, 0.0, 99.0, COMPLETED, events_s, Usage(1, output)))
    decoding_s = found["e2el"][0] - found["ttft"][0]
    assert sum(found["itl"]) == pytest.approx(decoding_s)
    assert found["tpot"][0] * (output - 1) == pytest.approx(decoding_s)


def test_statistics_are_those_of_numpy() -> None:
    assert latencies_of([]) is None
    assert latencies_of([0.004]) == Latencies(4.0, 4.0, 0.0, 4.0)
    found = latencies_of([0.001, 0.002, 0.006])
    assert found is not None
    assert astuple(found) == pytest.approx((3.0, 2.0, (14 / 3) ** 0.5, 5.92))


def test_a_rate_is_summed_up_over_completed_answers_only() -> None:
    failed = [
        replace(DONE, outcome=outcome, usage=None, sent_s=1.0, ended_s=ended_s)
        for outcome, ended_s in (("http_429", 1.0), ("http_429", 1.0), ("timeout", 4.0), ("disconnected", 2.0))
    ]
    summary = summarise(2.0, [DONE, *failed, replace(DONE, sent_s=1.0)])
    assert (summary.offered, summary.completed, summary.failed, summary.request_throughput) == (6, 2, 4, 0.5)
    assert (summary.refused, summary.errors) == (2, {"disconnected": 1, "timeout": 1})
    assert summary.duration == 4.0
    assert summary.sent_late == 1
    assert summary.client_lag_p99_s == pytest.approx(0.2375)
    found = {name: astuple(figures) for name, figures in summary.latencies_ms.items() if figures}
    assert found["ttft"] == pytest.approx((625.0, 625.0, 125.0, 747.5))
    assert found["tpot"] == pytest.approx((250.0, 250.0, 0.0, 250.0))
    assert found["itl"] == pytest.approx((500.0, 500.0, 250.0, 750.0))
    assert found["e2el"] == pytest.approx((1625.0, 1625.0, 125.0, 1747.5))
    assert (summary.total_input_tokens, summary.total_output_tokens, summary.cached_tokens) == (20, 10, 8)
    assert (summary.output_throughput, summary.total_token_throughput) == (2.5, 7.5)
    assert (summary.drafted_tokens, summary.accepted_tokens, summary.acceptance) == (16, 4, 0.25)


def test_the_text_is_shaped_like_that_of_vllm() -> None:
    refused = replace(DONE, outcome="http_429", usage=None)
    text = as_text(summarise(2.0, [DONE, refused, replace(refused, outcome="timeout")]), max_concurrency=3)
    assert [line.rstrip() for line in text.splitlines()] == [
        "============ Serving Benchmark Result ============",
        "Successful requests:                     1",
        "Failed requests:                         2",
        "Maximum request concurrency:             3",
        "Request rate configured (RPS):           2.00",
        "Benchmark duration (s):                  3.00",
        "Total input tokens:                      10",
        "Total generated tokens:                  5",
        "Request throughput (req/s):              0.33",
        "Output token throughput (tok/s):         1.67",
        "Total token throughput (tok/s):          5.00",
        "---------------Time to First Token----------------",
        "Mean TTFT (ms):                          500.00",
        "Median TTFT (ms):                        500.00",
        "P99 TTFT (ms):                           500.00",
        "-----Time per Output Token (excl. 1st token)------",
        "Mean TPOT (ms):                          250.00",
        "Median TPOT (ms):                        250.00",
        "P99 TPOT (ms):                           250.00",
        "---------------Inter-token Latency----------------",
        "Mean ITL (ms):                           500.00",
        "Median ITL (ms):                         500.00",
        "P99 ITL (ms):                            745.00",
        "----------------End-to-end Latency----------------",
        "Mean E2EL (ms):                          1500.00",
        "Median E2EL (ms):                        1500.00",
        "P99 E2EL (ms):                           1500.00",
        "---------------Speculative Decoding---------------",
        "Acceptance rate (%):                     25.00",
        "Draft tokens:                            8",
        "Accepted tokens:                         2",
        "---------------------Outcomes---------------------",
        "Refused requests (429):                  1",
        "timeout:                                 1",
        "Cached input tokens:                     4",
        "Sent over 10 ms late:                    3",
        "P99 client lag (ms):                     250.00",
        "==================================================",
    ]


def test_json_has_the_keys_of_vllm() -> None:
    found = as_json(summarise(inf, [DONE]))
    assert found["request_rate"] == "inf"
    assert (found["mean_ttft_ms"], found["median_tpot_ms"], found["p99_e2el_ms"]) == (500.0, 250.0, 1500.0)
    assert found["std_itl_ms"] == 250.0
    keys = {"duration", "completed", "failed", "total_input_tokens", "total_output_tokens"}
    assert keys | {"request_throughput", "output_throughput", "total_token_throughput"} <= set(found)


def test_nothing_completed_is_told_as_such() -> None:
    refused = replace(DONE, outcome="http_429", usage=None, events_s=())
    for answers in ([], [refused]):
        summary = summarise(1.0, answers)
        assert (set(summary.latencies_ms.values()), summary.acceptance) == ({None}, None)
        assert "TTFT" not in as_text(summary)
        assert as_json(summary)["mean_ttft_ms"] is None


def test_speeds_of_requests_are_medians_over_those_completed() -> None:
    lost = Answer("/", 0.0, 0.0, 3.0, "timeout")
    answers = (
        Answer("/", 0.0, 0.0, 2.0, "completed", (1.0, 2.0), Usage(3, 5)),
        Answer("/", 0.0, 1.0, 4.0, "completed", (2.0, 4.0), Usage(3, 9)),
        lost,
    )
    assert request_tokens_per_s(answers) == pytest.approx((5 / 2 + 9 / 3) / 2)
    assert request_tokens_per_s([lost]) is None


def promised(slo_class: str, outcome: str = COMPLETED, kept: bool | None = None, **fields: Any) -> Answer:
    usage = Usage(prompt=5, output=4, kept=kept) if outcome == COMPLETED else None
    return Answer("/", 0.0, 0.0, 10.0, outcome, usage=usage, slo_class=slo_class, **fields)


def test_each_class_tells_what_was_kept_refused_and_lost() -> None:
    answers = [
        promised("fast", kept=True),
        promised("fast", kept=False),
        promised("fast", REFUSED, retry_after_s=3.0, detail="no room"),
        promised("fast", REFUSED, retry_after_s=3.0),
        promised("fast", REFUSED, detail="no room"),
        promised("fast", "disconnected"),
        promised("free", kept=True),
        promised("free", "http_500"),
    ]
    summary = summarise(1.0, answers)
    fast, free = summary.classes["fast"], summary.classes["free"]
    assert (fast.offered, fast.kept, fast.late, fast.refused, fast.untold, fast.lost) == (6, 1, 1, 3, 2, 1)
    assert (free.offered, free.kept, free.late, free.refused, free.lost) == (2, 1, 0, 0, 1)
    assert summary.kept_per_s == pytest.approx(2 / 10.0)
    assert "fast" in as_text(summary)


def test_a_service_that_tells_no_promise_keeps_what_it_completes() -> None:
    assert summarise(1.0, [promised("", kept=None)]).kept_per_s == pytest.approx(0.1)
    assert summarise(1.0, [promised("", kept=None)]).classes == {}


def test_what_is_kept_is_compared_with_the_best_at_lower_rates() -> None:
    summaries = [replace(summarise(rate, []), kept_per_s=kept) for rate, kept in ((1.0, 1.0), (4.0, 1.5), (2.0, 2.0))]
    assert kept_shares(summaries) == [None, pytest.approx(0.75), pytest.approx(2.0)]
