"""From samples to figures: medians and spreads over repeats. No I/O, no clock."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from bench.load_report import COMPLETED, Answer, Summary, time_to_first_token_s

BARE = "bare vllm"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over repeats, the smallest and the largest value."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """``41.2 [40.8-44.0]``."""
        return f"{self.median:.1f} [{self.low:.1f}-{self.high:.1f}]"


@dataclass(frozen=True, slots=True)
class RoundCell:
    """A size of verification: generations, draft tokens of each, prefix of each, and whether that is resident."""

    generations: int
    draft: int
    prefix: int
    warm: bool


@dataclass(frozen=True, slots=True)
class RoundSample:
    """What one arm took, once. ``failure`` in place of seconds where it failed."""

    cell: RoundCell
    arm: str
    seconds: float | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """One cell.

    Attributes:
        milliseconds: of each arm that ran.
        over_bare: for each arm but the bare step itself, median over repeats of its time over the bare step's of the
            same repeat; empty where the bare step did not run.
        failures: first message of each arm that failed.
    """

    cell: RoundCell
    milliseconds: Mapping[str, Spread]
    over_bare: Mapping[str, float]
    failures: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AloneSample:
    """One engine's closed loop, once. ``exact``: whether it said what was recorded (float32 must)."""

    arm: str
    clients: int
    window: int
    tokens_per_s: float | None
    acceptance: float | None
    exact: bool
    failure: str = ""


@dataclass(frozen=True, slots=True)
class AloneFigures:
    """One engine at one number of clients and one window, over repeats."""

    arm: str
    clients: int
    window: int
    tokens_per_s: Spread | None
    acceptance: float | None
    exact: bool
    failure: str


@dataclass(frozen=True, slots=True)
class ServedSample:
    """One arm at one number of clients, once. ``failure`` in place of figures where it failed."""

    arm: str
    clients: int
    summary: Summary | None
    client_tokens_per_s: float | None = None
    tpot_s: float | None = None
    acceptance: float | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class ServedFigures:
    """One arm at one number of clients, over repeats; None: nothing to measure.

    Attributes:
        tokens_per_s: output tokens of all clients, from the first request to the last answer's end.
        client_tokens_per_s: of one request, median over requests.
        tpot_ms: milliseconds per output token after the first, median over requests: tokens that come together, as
            speculation's do, have no latency of their own.
        acceptance: accepted over drafted tokens.
        unanswered: requests that were not completed.
    """

    arm: str
    clients: int
    tokens_per_s: Spread | None
    client_tokens_per_s: Spread | None
    ttft_ms: Spread | None
    tpot_ms: Spread | None
    acceptance: float | None
    unanswered: int
    failure: str


def rotated(items: Sequence[_T], repeat: int) -> list[_T]:
    """Another one first in every repeat, so that what drifts meanwhile does not always meet the same one."""
    first = repeat % len(items) if items else 0
    return [*items[first:], *items[:first]]


def spread(values: Sequence[float]) -> Spread | None:
    """None of nothing."""
    return Spread(median(values), min(values), max(values)) if values else None


def round_figures(samples: Iterable[RoundSample]) -> list[RoundFigures]:
    """By cell, in the order met. An arm's samples of one cell are in the order of the repeats."""
    cells: dict[RoundCell, dict[str, list[RoundSample]]] = {}
    for sample in samples:
        cells.setdefault(sample.cell, {}).setdefault(sample.arm, []).append(sample)
    return [_round(cell, arms) for cell, arms in cells.items()]


def _round(cell: RoundCell, arms: Mapping[str, Sequence[RoundSample]]) -> RoundFigures:
    seconds = {arm: [one.seconds for one in found] for arm, found in arms.items()}
    bare = seconds.get(BARE, [])
    over = {
        arm: [one / base for one, base in zip(times, bare, strict=False) if one is not None and base is not None]
        for arm, times in seconds.items()
        if arm != BARE
    }
    return RoundFigures(
        cell=cell,
        milliseconds={
            arm: one
            for arm, times in seconds.items()
            if (one := spread([1e3 * time for time in times if time is not None])) is not None
        },
        over_bare={arm: median(ratios) for arm, ratios in over.items() if ratios},
        failures={
            arm: failure
            for arm, found in arms.items()
            if (failure := next((one.failure for one in found if one.failure), ""))
        },
    )


def request_tokens_per_s(answers: Sequence[Answer]) -> float | None:
    """Output tokens of a request over its time from sending to its end; median over completed requests."""
    rates = [
        answer.usage.output / (answer.ended_s - answer.sent_s)
        for answer in answers
        if answer.outcome == COMPLETED and answer.usage is not None
    ]
    return median(rates) if rates else None


def alone_figures(samples: Iterable[AloneSample]) -> list[AloneFigures]:
    """By arm, clients and window, in the order met first."""
    groups: dict[tuple[str, int, int], list[AloneSample]] = {}
    for sample in samples:
        groups.setdefault((sample.arm, sample.clients, sample.window), []).append(sample)
    return [
        AloneFigures(
            *key,
            tokens_per_s=spread([one.tokens_per_s for one in group if one.tokens_per_s is not None]),
            acceptance=next((one.acceptance for one in group if one.acceptance is not None), None),
            exact=all(one.exact for one in group),
            failure=next((one.failure for one in group if one.failure), ""),
        )
        for key, group in groups.items()
    ]


def request_tpot_s(answers: Sequence[Answer]) -> float | None:
    """Seconds per output token after the first; median over completed requests of several tokens."""
    times_s = [
        (answer.ended_s - answer.sent_s - ttft_s) / (answer.usage.output - 1)
        for answer in answers
        if answer.outcome == COMPLETED and answer.usage is not None and answer.usage.output > 1
        if (ttft_s := time_to_first_token_s(answer)) is not None
    ]
    return median(times_s) if times_s else None


def served_figures(samples: Iterable[ServedSample]) -> list[ServedFigures]:
    """By arm and clients, in the order met first."""
    groups: dict[tuple[str, int], list[ServedSample]] = {}
    for sample in samples:
        groups.setdefault((sample.arm, sample.clients), []).append(sample)
    return [_served(arm, clients, group) for (arm, clients), group in groups.items()]


def _served(arm: str, clients: int, group: Sequence[ServedSample]) -> ServedFigures:
    summaries = [one.summary for one in group if one.summary is not None]
    answered = [one for one in summaries if one.completed]
    accepted = [one.acceptance for one in group if one.acceptance is not None]
    return ServedFigures(
        arm=arm,
        clients=clients,
        tokens_per_s=spread([one.output_tokens_per_s for one in answered]),
        client_tokens_per_s=spread([one.client_tokens_per_s for one in group if one.client_tokens_per_s is not None]),
        ttft_ms=spread([1e3 * one.ttft_s.p50 for one in answered if one.ttft_s is not None]),
        tpot_ms=spread([1e3 * one.tpot_s for one in group if one.tpot_s is not None]),
        acceptance=median(accepted) if accepted else None,
        unanswered=sum(one.offered - one.completed for one in summaries),
        failure=next((one.failure for one in group if one.failure), ""),
    )
