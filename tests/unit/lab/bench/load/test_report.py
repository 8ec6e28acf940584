from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.load.report import (
    COMPLETED,
    REFUSED,
    Answer,
    Event,
    Percentiles,
    Usage,
    as_text,
    kept_shares,
    percentiles,
    request_tokens_per_s,
    request_tpot_s,
    summarise,
    time_to_first_token_s,
    token_gaps,
    weighted_percentiles,
)

COUNTED = Answer(
    path="/v1/chat/completions",
    due_s=1.0,
    sent_s=1.25,
    ended_s=3.0,
    outcome="completed",
    events=(Event(1.5, 0, 0), Event(1.75, 3, 1), Event(2.5, 9, 4), Event(2.75, 4, 5), Event(3.0, 0, 5)),
    usage=Usage(prompt=10, output=5, cached=4, accepted=2, rejected=6),
)


def test_an_event_of_three_tokens_counts_as_three_gaps_of_a_third() -> None:
    assert time_to_first_token_s(COUNTED) == 0.5
    assert token_gaps(COUNTED) == [(0.25, 3.0), (0.25, 1.0)]


def test_without_counts_an_event_with_text_is_a_token_and_the_rest_is_shared_by_characters() -> None:
    events = (Event(1.5, 0), Event(1.75, 4), Event(2.5, 12), Event(3.0, 0))
    answer = replace(COUNTED, events=events, usage=Usage(prompt=10, output=6))
    assert time_to_first_token_s(answer) == 0.5
    assert token_gaps(answer) == [(0.1875, 4.0)]  # 1 + 4 * 12 / 16


def test_tokens_without_text_make_no_gaps() -> None:
    answer = replace(COUNTED, events=(Event(1.5, 0), Event(2.0, 0)))
    assert time_to_first_token_s(answer) is None
    assert token_gaps(answer) == []


gap = st.tuples(st.floats(0.0, 10.0), st.integers(0, 5))


@given(gaps=st.lists(gap, min_size=1), counted=st.booleans())
def test_gaps_add_up_to_the_time_between_first_and_last_token(gaps: list[tuple[float, int]], counted: bool) -> None:
    events, at_s, so_far = [], 0.0, 0
    for seconds, tokens in gaps:
        at_s, so_far = at_s + seconds, so_far + tokens
        events.append(Event(at_s, 3 * tokens, so_far if counted else None))
    answer = Answer("/", 0.0, 0.0, at_s, "completed", tuple(events), Usage(1, so_far))
    carrying = [event for event in events if event.chars]
    span_s = carrying[-1].at_s - carrying[0].at_s if carrying else 0.0
    found = token_gaps(answer)
    assert sum(seconds * tokens for seconds, tokens in found) == pytest.approx(span_s)
    assert len(found) == max(len(carrying) - 1, 0)
    if carrying:
        first = carrying[0].chars / 3
        expected = so_far - first if counted else None
        total = sum(tokens for _, tokens in found)
        assert total == pytest.approx(expected) if counted else 0 <= total <= so_far


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5)), min_size=1))
def test_a_weight_counts_like_repetition(weighted: list[tuple[float, int]]) -> None:
    repeated = sorted(value for value, weight in weighted for _ in range(weight))
    found = weighted_percentiles([(value, float(weight)) for value, weight in weighted])
    assert found is not None
    for share, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        assert value in repeated
        assert sum(other <= value for other in repeated) >= share * len(repeated) - 1e-6
        assert sum(other < value for other in repeated) <= share * len(repeated) + 1e-6


def test_percentiles_of_nothing_are_none() -> None:
    assert percentiles([]) is None
    assert weighted_percentiles([]) is None
    assert percentiles([4.0]) == Percentiles(4.0, 4.0, 4.0)
    assert percentiles([float(i) for i in range(101)]) == Percentiles(50.0, 90.0, 99.0)


def test_a_rate_is_summed_up_over_completed_answers_only() -> None:
    failed = [
        replace(COUNTED, outcome=outcome, usage=None, sent_s=1.0, ended_s=ended_s)
        for outcome, ended_s in (("http_429", 1.0), ("http_429", 1.0), ("timeout", 4.0), ("disconnected", 2.0))
    ]
    summary = summarise(2.0, 5.0, [COUNTED, *failed, replace(COUNTED, sent_s=1.0)])
    assert (summary.offered, summary.offered_per_s) == (6, 1.2)
    assert (summary.completed, summary.completed_per_s) == (2, 0.5)
    assert (summary.refused, summary.errors) == (2, {"disconnected": 1, "timeout": 1})
    assert summary.elapsed_s == 4.0
    assert summary.sent_late == 1
    assert summary.client_lag_p99_s == pytest.approx(0.2375)
    assert summary.ttft_s is not None
    assert (summary.ttft_s.p50, summary.ttft_s.p90) == pytest.approx((0.625, 0.725))
    assert summary.itl_s == Percentiles(0.25, 0.25, 0.25)
    assert summary.itl_counted
    assert summary.e2e_s is not None
    assert summary.e2e_s.p50 == 1.875
    assert (summary.prompt_tokens, summary.output_tokens, summary.cached_tokens) == (20, 10, 8)
    assert summary.output_tokens_per_s == 2.5
    assert (summary.drafted_tokens, summary.acceptance) == (16, 0.25)


def test_the_text_names_every_figure() -> None:
    refused = replace(COUNTED, outcome="http_429", usage=None)
    assert as_text(summarise(2.0, 4.0, [COUNTED, refused, replace(refused, outcome="timeout")])).splitlines() == [
        "2 requests/s: offered 3 (0.75/s), completed 1 (0.33/s over 3.0 s), refused (429) 1, timeout 1",
        "  client lag p99 250.0 ms, sent more than 10 ms late: 3",
        "  ms           p50       p90       p99",
        "  TTFT       500.0     500.0     500.0",
        "  ITL        250.0     250.0     250.0",
        "  e2e       1750.0    1750.0    1750.0",
        "  1.7 output tokens/s; 5 output, 10 prompt (4 cached), 8 drafted, acceptance 0.25",
    ]


def test_nothing_completed_is_told_as_such() -> None:
    refused = replace(COUNTED, outcome="http_429", usage=None, events=())
    for answers in ([], [refused]):
        summary = summarise(1.0, 1.0, answers)
        assert (summary.ttft_s, summary.itl_s, summary.e2e_s, summary.acceptance) == (None, None, None, None)
        assert "acceptance -" in as_text(summary)


def test_estimated_gaps_are_marked() -> None:
    estimated = replace(COUNTED, events=(Event(1.5, 3), Event(2.5, 9)))
    summary = summarise(1.0, 1.0, [COUNTED, estimated])
    assert not summary.itl_counted
    assert "(tokens per event estimated)" in as_text(summary)


def test_speeds_of_requests_are_medians_over_those_completed() -> None:
    lost = Answer("/", 0.0, 0.0, 3.0, "timeout")
    answers = (
        Answer("/", 0.0, 0.0, 2.0, "completed", (Event(1.0, 4, 1), Event(2.0, 8, 5)), Usage(3, 5)),
        Answer("/", 0.0, 1.0, 4.0, "completed", (Event(2.0, 4, 1), Event(4.0, 8, 9)), Usage(3, 9)),
        lost,
    )
    assert request_tokens_per_s(answers) == pytest.approx((5 / 2 + 9 / 3) / 2)
    assert request_tpot_s(answers) == pytest.approx((1.0 / 4 + 2.0 / 8) / 2)
    assert request_tokens_per_s([lost]) is None
    assert request_tpot_s([lost]) is None


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
    summary = summarise(1.0, 8.0, answers)
    fast, free = summary.classes["fast"], summary.classes["free"]
    assert (fast.offered, fast.kept, fast.late, fast.refused, fast.untold, fast.lost) == (6, 1, 1, 3, 2, 1)
    assert (free.offered, free.kept, free.late, free.refused, free.lost) == (2, 1, 0, 0, 1)
    assert summary.kept_per_s == pytest.approx(2 / 10.0)
    assert "fast" in as_text(summary)


def test_a_service_that_tells_no_promise_keeps_what_it_completes() -> None:
    assert summarise(1.0, 1.0, [promised("", kept=None)]).kept_per_s == pytest.approx(0.1)
    assert summarise(1.0, 1.0, [promised("", kept=None)]).classes == {}


def test_what_is_kept_is_compared_with_the_best_at_lower_rates() -> None:
    summaries = [
        replace(summarise(rate, 1.0, []), kept_per_s=kept) for rate, kept in ((1.0, 1.0), (4.0, 1.5), (2.0, 2.0))
    ]
    assert kept_shares(summaries) == [None, pytest.approx(0.75), pytest.approx(2.0)]
