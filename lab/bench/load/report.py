"""From answers to figures: definitions for each request, and the summary of a rate. No I/O, no clock.

Of each completed request:

- time to first token (TTFT): from sending to the first event that carries a token;
- inter-token latency (ITL): per token, the time since the event before divided by the tokens of the event, so an event
  of three tokens after 90 ms counts as three of 30 ms. The first event's tokens are TTFT's. If the service sends no
  running token count, each event with text counts as one token, and the rest is shared by characters;
- end to end (e2e): from sending to the end of the stream.

Sending late is the client's own fault and is reported as client lag, not as latency.

A promise is *kept* if the service says so in ``usage.outrider.slo``: the response's tokens behind its first ones came
at the promised speed. A response without a promise is kept if it completes. A refusal is *told* if it names a time to
retry (Retry-After) and a reason. What is neither completed nor refused is *lost*.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import median

import numpy as np

COMPLETED = "completed"
REFUSED = "http_429"
LATE_S = 0.01  # a request sent later than this counts as late


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: time, characters of text, and output tokens so far if the service counts them."""

    at_s: float
    chars: int
    tokens_so_far: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response, from its ``usage``."""

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
    events: tuple[Event, ...] = ()  # those with a choice, up to the end or the failure
    usage: Usage | None = None  # None if the stream did not get as far
    detail: str = ""  # of a failure, from the service or the HTTP client
    kind: str = ""  # the request's; likewise ``slo_class``
    slo_class: str = ""
    retry_after_s: float | None = None  # sent with a refusal


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of a set of times, in seconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """Outcomes of one SLO class's requests."""

    offered: int
    kept: int
    late: int  # completed, slower than promised
    refused: int
    untold: int  # refusals without a time to retry or a reason
    lost: int
    ttft_s: Percentiles | None


@dataclass(frozen=True, slots=True)
class Summary:
    """One rate. Rates count from the load's start to the last answer's end; ``None``: nothing to measure."""

    rate_per_s: float
    offered: int
    offered_per_s: float
    completed: int
    completed_per_s: float
    refused: int
    errors: Mapping[str, int]  # number by outcome; completed and refused (429) requests are separate
    elapsed_s: float
    sent_late: int
    client_lag_p99_s: float | None
    ttft_s: Percentiles | None
    itl_s: Percentiles | None
    itl_counted: bool  # whether ITL uses the service's own token counts; False: estimates
    e2e_s: Percentiles | None
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_s: float
    cached_tokens: int
    drafted_tokens: int
    acceptance: float | None  # accepted over draft tokens
    kept_per_s: float = 0.0  # responses that kept their promise
    classes: Mapping[str, ClassSummary] = field(default_factory=dict)  # if any was named


def summarise(rate_per_s: float, span_s: float, answers: Sequence[Answer]) -> Summary:
    """Summarise one rate.

    Args:
        rate_per_s: intended rate.
        span_s: time in which the requests were to be sent.
        answers: one per request.
    """
    outcomes = Counter(answer.outcome for answer in answers)
    done = [answer for answer in answers if answer.outcome == COMPLETED]
    usages = [answer.usage for answer in done if answer.usage is not None]
    elapsed_s = max((answer.ended_s for answer in answers), default=0.0)
    lags_s = [answer.sent_s - answer.due_s for answer in answers]
    gaps = [gap for answer in done for gap in token_gaps(answer)]
    output = sum(usage.output for usage in usages)
    accepted, rejected = sum(usage.accepted for usage in usages), sum(usage.rejected for usage in usages)
    return Summary(
        rate_per_s=rate_per_s,
        offered=len(answers),
        offered_per_s=_ratio(len(answers), span_s) or 0.0,
        completed=len(done),
        completed_per_s=_ratio(len(done), elapsed_s) or 0.0,
        refused=outcomes[REFUSED],
        errors={kind: n for kind, n in sorted(outcomes.items()) if kind not in (COMPLETED, REFUSED)},
        elapsed_s=elapsed_s,
        sent_late=sum(lag_s > LATE_S for lag_s in lags_s),
        client_lag_p99_s=float(np.percentile(lags_s, 99)) if lags_s else None,
        ttft_s=percentiles([ttft_s for answer in done if (ttft_s := time_to_first_token_s(answer)) is not None]),
        itl_s=weighted_percentiles(gaps),
        itl_counted=all(_has_running_counts(answer) for answer in done),
        e2e_s=percentiles([answer.ended_s - answer.sent_s for answer in done]),
        prompt_tokens=sum(usage.prompt for usage in usages),
        output_tokens=output,
        output_tokens_per_s=_ratio(output, elapsed_s) or 0.0,
        cached_tokens=sum(usage.cached for usage in usages),
        drafted_tokens=accepted + rejected,
        acceptance=_ratio(accepted, accepted + rejected),
        kept_per_s=_ratio(sum(map(kept, answers)), elapsed_s) or 0.0,
        classes={
            name: _class_summary([answer for answer in answers if answer.slo_class == name])
            for name in sorted({answer.slo_class for answer in answers} - {""})
        },
    )


def kept(answer: Answer) -> bool:
    """Whether a response completed and kept its promise."""
    told = None if answer.usage is None else answer.usage.kept
    return answer.outcome == COMPLETED and told is not False


def _class_summary(answers: Sequence[Answer]) -> ClassSummary:
    done = [answer for answer in answers if answer.outcome == COMPLETED]
    refused = [answer for answer in answers if answer.outcome == REFUSED]
    firsts_s = [ttft_s for answer in done if (ttft_s := time_to_first_token_s(answer)) is not None]
    return ClassSummary(
        offered=len(answers),
        kept=sum(map(kept, done)),
        late=sum(not kept(answer) for answer in done),
        refused=len(refused),
        untold=sum(answer.retry_after_s is None or not answer.detail for answer in refused),
        lost=len(answers) - len(done) - len(refused),
        ttft_s=percentiles(firsts_s),
    )


def kept_shares(summaries: Sequence[Summary]) -> list[float | None]:
    """Per rate, kept promises per second over the best at any lower rate; None for the lowest rate or a best of 0."""
    found: list[float | None] = []
    for summary in summaries:
        lower = [other.kept_per_s for other in summaries if other.rate_per_s < summary.rate_per_s]
        found.append(_ratio(summary.kept_per_s, max(lower, default=0.0)))
    return found


def time_to_first_token_s(answer: Answer) -> float | None:
    """From sending to the first event with a token; None without one."""
    carrying = (event.at_s for event, tokens in zip(answer.events, _event_tokens(answer), strict=True) if tokens > 0)
    first_s = next(carrying, None)
    return None if first_s is None else first_s - answer.sent_s


def token_gaps(answer: Answer) -> list[tuple[float, float]]:
    """``(seconds per token, tokens)`` of each event with tokens after the first. Estimated tokens are fractions."""
    events = zip(answer.events, _event_tokens(answer), strict=True)
    carrying = [(event.at_s, tokens) for event, tokens in events if tokens > 0]
    return [((at_s - before_s) / tokens, tokens) for (before_s, _), (at_s, tokens) in pairwise(carrying)]


def request_tokens_per_s(answers: Sequence[Answer]) -> float | None:
    """Output tokens of a request per second from sending to its end; median over completed requests."""
    rates = [
        answer.usage.output / (answer.ended_s - answer.sent_s)
        for answer in answers
        if answer.outcome == COMPLETED and answer.usage is not None
    ]
    return median(rates) if rates else None


def request_tpot_s(answers: Sequence[Answer]) -> float | None:
    """Seconds per output token after the first; median over completed requests of several tokens."""
    times_s = [
        (answer.ended_s - answer.sent_s - ttft_s) / (answer.usage.output - 1)
        for answer in answers
        if answer.outcome == COMPLETED and answer.usage is not None and answer.usage.output > 1
        if (ttft_s := time_to_first_token_s(answer)) is not None
    ]
    return median(times_s) if times_s else None


def percentiles(values: Sequence[float]) -> Percentiles | None:
    return Percentiles(*map(float, np.percentile(values, (50, 90, 99)))) if values else None


def weighted_percentiles(weighted: Sequence[tuple[float, float]]) -> Percentiles | None:
    """Percentiles of ``(value, weight)``: the smallest value at or below which that share of the weight lies."""
    if not weighted:
        return None
    values, weights = zip(*weighted, strict=True)
    return Percentiles(*map(float, np.percentile(values, (50, 90, 99), weights=weights, method="inverted_cdf")))


def _has_running_counts(answer: Answer) -> bool:
    return any(event.tokens_so_far is not None for event in answer.events)


def _event_tokens(answer: Answer) -> list[float]:
    """Tokens of each event."""
    if _has_running_counts(answer):
        so_far = [0, *accumulate((event.tokens_so_far or 0 for event in answer.events), max)]
        return [float(after - before) for before, after in pairwise(so_far)]
    chars, texts = sum(event.chars for event in answer.events), sum(event.chars > 0 for event in answer.events)
    if answer.usage is None or not texts:
        return [0.0] * len(answer.events)
    at_least = min(1.0, answer.usage.output / texts)
    per_char = (answer.usage.output - at_least * texts) / chars
    return [at_least + event.chars * per_char if event.chars else 0.0 for event in answer.events]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def as_text(summary: Summary) -> str:
    """The lines printed for a rate."""
    errors = "".join(f", {kind} {n}" for kind, n in summary.errors.items()) or ", no other errors"
    requests = (
        f"{summary.rate_per_s:g} requests/s: offered {summary.offered} ({summary.offered_per_s:.2f}/s), "
        f"completed {summary.completed} ({summary.completed_per_s:.2f}/s over {summary.elapsed_s:.1f} s), "
        f"refused (429) {summary.refused}{errors}"
    )
    lag = "-" if summary.client_lag_p99_s is None else f"{summary.client_lag_p99_s * 1e3:.1f} ms"
    client = f"  client lag p99 {lag}, sent more than {LATE_S * 1e3:.0f} ms late: {summary.sent_late}"
    acceptance = "-" if summary.acceptance is None else f"{summary.acceptance:.2f}"
    tokens = (
        f"  {summary.output_tokens_per_s:.1f} output tokens/s; {summary.output_tokens} output, {summary.prompt_tokens} "
        f"prompt ({summary.cached_tokens} cached), {summary.drafted_tokens} drafted, acceptance {acceptance}"
    )
    head = f"  {'ms':<6} {'p50':>9} {'p90':>9} {'p99':>9}"
    itl = _row("ITL", summary.itl_s) + ("" if summary.itl_counted else "  (tokens per event estimated)")
    rows = (requests, client, head, _row("TTFT", summary.ttft_s), itl, _row("e2e", summary.e2e_s), tokens)
    return "\n".join((*rows, *_class_rows(summary)))


def _class_rows(summary: Summary) -> list[str]:
    if not summary.classes:
        return []
    head = f"  {'class':<14} offered  kept  late  refused (untold)  lost"
    rows = [f"  kept {summary.kept_per_s:.3f} responses/s", head]
    for name, one in summary.classes.items():
        counts = f"{one.offered:>7} {one.kept:>5} {one.late:>5} {one.refused:>8} {f'({one.untold})':>8} {one.lost:>5}"
        rows.append(f"  {name:<14} {counts}  TTFT p50/p99 {_pair_ms(one.ttft_s)}")
    return rows


def _pair_ms(times: Percentiles | None) -> str:
    return "-" if times is None else f"{times.p50 * 1e3:.0f} / {times.p99 * 1e3:.0f} ms"


def _row(name: str, times: Percentiles | None) -> str:
    if times is None:
        return f"  {name:<6} {'-':>9} {'-':>9} {'-':>9}"
    return f"  {name:<6} {times.p50 * 1e3:>9.1f} {times.p90 * 1e3:>9.1f} {times.p99 * 1e3:>9.1f}"
