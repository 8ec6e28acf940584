"""A method on a link at a window: score, accepted length, rounds and latency, with 95 % intervals over tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.harness.statistics import Estimate, ratio


@dataclass(frozen=True, slots=True)
class Answer:
    """One response.

    Attributes:
        window: requested; None: free.
        rounds: verify outcomes, the prompt's own included.
        judged: mismatches that a head decided, of which ``overrides`` passed.
    """

    link: str
    method: str
    window: int | None
    task: str
    score: float
    tokens: int
    rounds: int
    elapsed_s: float
    judged: int
    overrides: int


@dataclass(frozen=True, slots=True)
class Row:
    """One method at one window on one link; ``latency_s`` and ``rounds`` are per answer."""

    link: str
    method: str
    window: int | None
    tasks: int
    score: Estimate
    aal: Estimate
    rounds: Estimate
    latency_s: Estimate
    tokens_per_s: Estimate
    passed: float  # share of the judged mismatches

    @property
    def s_per_token(self) -> float:
        """The measure that methods are compared by, as answers may differ in length."""
        return 1.0 / self.tokens_per_s.mean


def rows(answers: Sequence[Answer]) -> list[Row]:
    """In order of first appearance."""
    groups: dict[tuple[str, str, int | None], list[Answer]] = {}
    for answer in answers:
        groups.setdefault((answer.link, answer.method, answer.window), []).append(answer)
    return [_row(own) for own in groups.values()]


def _row(own: Sequence[Answer]) -> Row:
    first, each = own[0], [1.0] * len(own)
    tokens, rounds = [float(one.tokens) for one in own], [float(one.rounds) for one in own]
    seconds = [one.elapsed_s for one in own]
    judged = sum(one.judged for one in own)
    return Row(
        link=first.link,
        method=first.method,
        window=first.window,
        tasks=len(own),
        score=ratio([one.score for one in own], each),
        aal=ratio(tokens, rounds),
        rounds=ratio(rounds, each),
        latency_s=ratio(seconds, each),
        tokens_per_s=ratio(tokens, seconds),
        passed=sum(one.overrides for one in own) / judged if judged else 0.0,
    )


def best_windows(found: Sequence[Row]) -> list[Row]:
    """Each method's best window on each link, by seconds a token; and those whose window was free."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row.link, row.method), []).append(row)
    return [min(own, key=lambda row: row.s_per_token) for own in groups.values()]
