"""From answers to figures: definitions for each request, and the summary of a rate. No I/O, no clock.

Figures have the names and definitions of ``vllm bench serve``. Of each completed request:

- time to first token (TTFT): from sending to the first event, one that only opens a chat aside;
- inter-token latency (ITL): between two events, however many tokens they carry: a round's tokens come together;
- end to end latency (E2EL): from sending to the last event;
- time per output token (TPOT): (E2EL - TTFT) / (output tokens - 1), of requests with several tokens.

Sending late is the client's own fault and is reported as client lag, not as latency; so is waiting for a place under
``--max-concurrency``.

A promise is *kept* if the service says so in ``usage.outrider.slo``: the response's tokens behind its first ones came
at the promised speed. A response without a promise is kept if it completes. A refusal is *told* if it names a time to
retry (Retry-After) and a reason. What is neither completed nor refused is *lost*.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import inf
from statistics import median

import numpy as np

COMPLETED = "completed"
REFUSED = "http_429"
LATE_S = 0.01  # a request sent later than this counts as late
_TITLES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}


@dataclass(frozen=True, slots=True)
class Usage:
    prompt: int
    output: int
    cached: int = 0
    accepted: int = 0
    rejected: int = 0
    kept: bool | None = None  # whether the promise was kept, if the service reports it


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of one request. Times in seconds since the load's start.

    Attributes:
        outcome: ``completed``; ``http_<status>``; ``timeout``; ``unreachable`` (no connection); ``disconnected``
            (broken off, or ended before ``[DONE]``); ``error_event`` (within the stream); ``malformed``.
    """

    path: str
    due_s: float  # when it should have been sent
    sent_s: float  # when it was sent
    ended_s: float  # end of the stream, or the moment it failed
    outcome: str
    events_s: tuple[float, ...] = ()  # those with a choice, up to the end or the failure
    usage: Usage | None = None  # None if the stream did not get as far
    detail: str = ""  # of a failure, from the service or the HTTP client
    kind: str = ""  # the request's; likewise ``slo_class``
    slo_class: str = ""
    retry_after_s: float | None = None  # sent with a refusal


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of a set of times, in ms."""

    mean: float
    median: float
    std: float
    p99: float


@dataclass(frozen=True, slots=True)
class ClassSummary:
    offered: int
    kept: int
    late: int  # completed, slower than promised
    refused: int
    untold: int  # refusals without a time to retry or a reason
    lost: int
    ttft_ms: Latencies | None


@dataclass(frozen=True, slots=True)
class Summary:
    """One rate; names without units are those of vLLM's result files. ``None``: nothing to measure."""

    request_rate: float  # intended, per s
    duration: float  # in s, from the load's start to the last answer's end
    offered: int
    completed: int
    failed: int  # all that did not complete
    refused: int
    errors: Mapping[str, int]  # number by outcome; completed and refused (429) requests are separate
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float  # per s, as the next two
    output_throughput: float
    total_token_throughput: float
    latencies_ms: Mapping[str, Latencies | None]  # by the keys of ``_TITLES``
    sent_late: int
    client_lag_p99_s: float | None
    cached_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    acceptance: float | None  # accepted over draft tokens
    kept_per_s: float = 0.0  # responses that kept their promise
    classes: Mapping[str, ClassSummary] = field(default_factory=dict)  # if any was named


def summarise(request_rate: float, answers: Sequence[Answer]) -> Summary:
    outcomes = Counter(answer.outcome for answer in answers)
    done = [answer for answer in answers if answer.outcome == COMPLETED]
    usages = [answer.usage for answer in done if answer.usage is not None]
    duration = max((answer.ended_s for answer in answers), default=0.0)
    lags_s = [answer.sent_s - answer.due_s for answer in answers]
    prompt, output = sum(usage.prompt for usage in usages), sum(usage.output for usage in usages)
    accepted, rejected = sum(usage.accepted for usage in usages), sum(usage.rejected for usage in usages)
    return Summary(
        request_rate=request_rate,
        duration=duration,
        offered=len(answers),
        completed=len(done),
        failed=len(answers) - len(done),
        refused=outcomes[REFUSED],
        errors={kind: n for kind, n in sorted(outcomes.items()) if kind not in (COMPLETED, REFUSED)},
        total_input_tokens=prompt,
        total_output_tokens=output,
        request_throughput=_ratio(len(done), duration) or 0.0,
        output_throughput=_ratio(output, duration) or 0.0,
        total_token_throughput=_ratio(prompt + output, duration) or 0.0,
        latencies_ms={name: latencies_of([s for one in done for s in times_s(one)[name]]) for name in _TITLES},
        sent_late=sum(lag_s > LATE_S for lag_s in lags_s),
        client_lag_p99_s=float(np.percentile(lags_s, 99)) if lags_s else None,
        cached_tokens=sum(usage.cached for usage in usages),
        drafted_tokens=accepted + rejected,
        accepted_tokens=accepted,
        acceptance=_ratio(accepted, accepted + rejected),
        kept_per_s=_ratio(sum(map(kept, answers)), duration) or 0.0,
        classes={
            name: _class_summary([answer for answer in answers if answer.slo_class == name])
            for name in sorted({answer.slo_class for answer in answers} - {""})
        },
    )


def as_json(summary: Summary) -> dict[str, object]:
    """The summary under the names of vLLM's result files (``mean_ttft_ms``)."""
    content = asdict(summary)
    for name, figures in content.pop("latencies_ms").items():
        for statistic in ("mean", "median", "std", "p99"):
            content[f"{statistic}_{name}_ms"] = None if figures is None else figures[statistic]
    return content | {"request_rate": "inf" if summary.request_rate == inf else summary.request_rate}


def kept(answer: Answer) -> bool:
    told = None if answer.usage is None else answer.usage.kept
    return answer.outcome == COMPLETED and told is not False


def _class_summary(answers: Sequence[Answer]) -> ClassSummary:
    done = [answer for answer in answers if answer.outcome == COMPLETED]
    refused = [answer for answer in answers if answer.outcome == REFUSED]
    return ClassSummary(
        offered=len(answers),
        kept=sum(map(kept, done)),
        late=sum(not kept(answer) for answer in done),
        refused=len(refused),
        untold=sum(answer.retry_after_s is None or not answer.detail for answer in refused),
        lost=len(answers) - len(done) - len(refused),
        ttft_ms=latencies_of([s for answer in done for s in times_s(answer)["ttft"]]),
    )


def kept_shares(summaries: Sequence[Summary]) -> list[float | None]:
    """Per rate, kept promises per second over the best at any lower rate; None for the lowest rate or a best of 0."""
    found: list[float | None] = []
    for summary in summaries:
        lower = [other.kept_per_s for other in summaries if other.request_rate < summary.request_rate]
        found.append(_ratio(summary.kept_per_s, max(lower, default=0.0)))
    return found


def times_s(answer: Answer) -> dict[str, list[float]]:
    """Times of one request by the keys of ``_TITLES``; none of what cannot be measured."""
    found: dict[str, list[float]] = {name: [] for name in _TITLES}
    if answer.events_s:
        first_s, last_s = answer.events_s[0], answer.events_s[-1]
        gaps_s = [after_s - before_s for before_s, after_s in pairwise(answer.events_s)]
        found |= {"ttft": [first_s - answer.sent_s], "itl": gaps_s, "e2el": [last_s - answer.sent_s]}
        if answer.usage is not None and answer.usage.output > 1:
            found["tpot"] = [(last_s - first_s) / (answer.usage.output - 1)]
    return found


def latencies_of(values_s: Sequence[float]) -> Latencies | None:
    if not values_s:
        return None
    ms = 1e3 * np.array(values_s)
    return Latencies(*map(float, (ms.mean(), np.median(ms), ms.std(), np.percentile(ms, 99))))


def request_tokens_per_s(answers: Sequence[Answer]) -> float | None:
    """Output tokens of a request per second from sending to its end; median over completed requests."""
    rates = [
        answer.usage.output / (answer.ended_s - answer.sent_s)
        for answer in answers
        if answer.outcome == COMPLETED and answer.usage is not None
    ]
    return median(rates) if rates else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def as_text(summary: Summary, max_concurrency: int | None = None) -> str:
    """The table of ``vllm bench serve``, with what only this bench counts at its end."""
    sections: dict[str, dict[str, float | None]] = {
        "Head": {
            "Successful requests": summary.completed,
            "Failed requests": summary.failed,
            "Maximum request concurrency": max_concurrency,
            "Request rate configured (RPS)": summary.request_rate if summary.request_rate < inf else None,
            "Benchmark duration (s)": summary.duration,
            "Total input tokens": summary.total_input_tokens,
            "Total generated tokens": summary.total_output_tokens,
            "Request throughput (req/s)": summary.request_throughput,
            "Output token throughput (tok/s)": summary.output_throughput,
            "Total token throughput (tok/s)": summary.total_token_throughput,
        }
    }
    for name, title in _TITLES.items():
        if figures := summary.latencies_ms[name]:
            told = {"Mean": figures.mean, "Median": figures.median, "P99": figures.p99}
            sections[title] = {f"{statistic} {name.upper()} (ms)": ms for statistic, ms in told.items()}
    if summary.acceptance is not None:
        drafts = {"Draft tokens": summary.drafted_tokens, "Accepted tokens": summary.accepted_tokens}
        sections["Speculative Decoding"] = {"Acceptance rate (%)": 100 * summary.acceptance, **drafts}
    sections["Outcomes"] = {
        "Refused requests (429)": summary.refused,
        **summary.errors,
        "Cached input tokens": summary.cached_tokens,
        "Sent over 10 ms late": summary.sent_late,
        "P99 client lag (ms)": None if summary.client_lag_p99_s is None else 1e3 * summary.client_lag_p99_s,
    }
    lines = []
    for title, values in sections.items():
        lines.append("{:=^50}".format(" Serving Benchmark Result ") if title == "Head" else f"{title:-^50}")
        shown = ((name, f"{value:.2f}" if isinstance(value, float) else str(value)) for name, value in values.items())
        lines += [f"{name + ':':<40} {value:<10}" for name, value in shown if value != "None"]
    return "\n".join([*lines, *_class_rows(summary), "=" * 50])


def _class_rows(summary: Summary) -> list[str]:
    if not summary.classes:
        return []
    head = f"  {'class':<14} offered  kept  late  refused (untold)  lost"
    rows = [f"  kept {summary.kept_per_s:.3f} responses/s", head]
    for name, one in summary.classes.items():
        counts = f"{one.offered:>7} {one.kept:>5} {one.late:>5} {one.refused:>8} {f'({one.untold})':>8} {one.lost:>5}"
        rows.append(f"  {name:<14} {counts}  TTFT p50/p99 {_pair_ms(one.ttft_ms)}")
    return rows


def _pair_ms(times: Latencies | None) -> str:
    return "-" if times is None else f"{times.median:.0f} / {times.p99:.0f} ms"
