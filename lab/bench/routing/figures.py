"""Figures of a rule: prefix hits, balance of the load, times to first token. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.bench.harness.samples import Spread, spread_of
from lab.bench.load.report import COMPLETED, Answer, time_to_first_token_s


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one verifier: output tokens, and seconds in which it was busy."""

    tokens: int
    busy_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One load under one rule, once. ``work`` is by coordinator."""

    rule: str
    users: int
    turn: int  # of the pass in which all rules are run once
    elapsed_s: float
    ttft_s: tuple[float, ...]  # of each complete response
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    failures: int
    failure: str  # the first one
    resumed: int  # times that a response resumed at another coordinator
    work: Mapping[str, Work]


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures over all turns: first-token times and prefix hits pooled, the rest spread over turns.

    ``balance`` is the busiest verifier's output tokens over the mean, ``busy_balance`` the same of its busy seconds.
    """

    rule: str
    users: int
    responses: int
    found: float  # share of prompt tokens
    balance: Spread
    busy_balance: Spread
    ttft_s: Mapping[int, float]  # by percentile
    tokens_per_s: Spread
    failures: int
    resumed: int


PERCENTILES = (50, 95, 99)


def run_of(
    rule: str, users: int, turn: int, answers: Sequence[Answer], work: Mapping[str, Work], resumed: int = 0
) -> Run:
    """Figures of a load's answers, whose times count from its start."""
    done = [answer for answer in answers if answer.outcome == COMPLETED]
    usages = [answer.usage for answer in done if answer.usage is not None]
    waited_s = (time_to_first_token_s(answer) for answer in done)
    return Run(
        rule=rule,
        users=users,
        turn=turn,
        elapsed_s=max(answer.ended_s for answer in answers),
        ttft_s=tuple(one_s for one_s in waited_s if one_s is not None),
        prompt_tokens=sum(usage.prompt for usage in usages),
        cached_tokens=sum(usage.cached for usage in usages),
        output_tokens=sum(usage.output for usage in usages),
        failures=len(answers) - len(done),
        failure=next((f"{one.outcome}: {one.detail}" for one in answers if one.outcome != COMPLETED), ""),
        resumed=resumed,
        work=work,
    )


def balance(amounts: Iterable[float]) -> float:
    """Maximum over mean; 1 if all are 0."""
    each = list(amounts)
    return max(each) * len(each) / sum(each) if any(each) else 1.0


def figures(runs: Sequence[Run]) -> list[Figures]:
    """By users and rule, in order of first appearance."""
    groups = dict[tuple[int, str], list[Run]]()
    for run in sorted(runs, key=lambda run: run.users):
        groups.setdefault((run.users, run.rule), []).append(run)
    return [_figures(group) for group in groups.values()]


def _figures(group: Sequence[Run]) -> Figures:
    """Figures of one rule and number of users."""
    waited_s = [one_s for run in group for one_s in run.ttft_s]
    return Figures(
        rule=group[0].rule,
        users=group[0].users,
        responses=len(waited_s),
        found=sum(run.cached_tokens for run in group) / max(1, sum(run.prompt_tokens for run in group)),
        balance=spread_of([balance(work.tokens for work in run.work.values()) for run in group]),
        busy_balance=spread_of([balance(work.busy_s for work in run.work.values()) for run in group]),
        ttft_s={share: float(np.percentile(waited_s, share)) for share in PERCENTILES} if waited_s else {},
        tokens_per_s=spread_of([run.output_tokens / run.elapsed_s for run in group]),
        failures=sum(run.failures for run in group),
        resumed=sum(run.resumed for run in group),
    )
