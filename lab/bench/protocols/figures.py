"""Figures and tables of methods in cells, with 95 % bootstrap intervals over responses, and of ``cheapest``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from lab.bench.harness.statistics import Estimate, picks, ratio
from lab.bench.protocols.plan import CHEAPEST, FIXED, NO_DRAFT, Cell, Response
from lab.reports.columns import Columns, show_columns
from outrider.contracts.drafting import DraftPlan

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """One method in one cell.

    Attributes:
        plans: drafted plans, most frequent first, with their share of rounds; None is no draft.
    """

    cell: Cell
    method: str
    plans: tuple[tuple[DraftPlan | None, float], ...]
    responses: int
    tokens: int  # committed while the method was at work; the figures below are over these
    wall_s: Estimate  # measured seconds per token
    charged_s: Estimate  # with the link's model
    up_bits: Estimate  # payload per token; likewise ``down_bits``
    down_bits: Estimate
    accepted_fraction: Estimate | None  # accepted over draft tokens; None if nothing was drafted
    accepted_len: Estimate | None  # accepted tokens per round with a draft
    rounds: Estimate  # per token
    row_requests: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``cheapest`` against the fixed method that turned out best, by charged seconds per token."""

    cell: Cell
    best: str
    best_s: float
    cheapest_s: float
    ratio: Estimate

    @property
    def within_tenth(self) -> bool:
        return self.ratio.mean <= 1.1


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of one response while its method was at work."""

    wall_s: float
    charged_s: float


def seconds(responses: Sequence[Response]) -> dict[int, Seconds]:
    """Seconds by ``id`` of the response. Rounds without a result (no candidate taken) count as measured in all."""
    usual_s = median(response.hidden_s for response in responses if not response.row_requests)
    found = {}
    for response in responses:
        lost_s = max(response.hidden_s - usual_s, 0.0) if response.row_requests else 0.0
        rounds, cell = response.rounds, response.cell
        found[id(response)] = Seconds(
            lost_s + sum(one.timing.total_s for one in rounds),
            lost_s + sum(one.charged_s(cell) for one in rounds),
        )
    return found


def figures(responses: Sequence[Response], of: dict[int, Seconds]) -> MethodFigures:
    rounds = [response.rounds for response in responses]
    tokens = [response.tokens for response in responses]

    def per(top: Callable[[Response], float], bottom: Sequence[float] = tokens) -> Estimate:
        return ratio([top(response) for response in responses], bottom)

    drafted = [sum(one.timing.drafted_tokens for one in some) for some in rounds]
    drafts = [sum(one.timing.drafted_tokens > 0 for one in some) for some in rounds]

    def accepted(response: Response) -> float:
        return sum(one.timing.accepted_tokens for one in response.rounds)

    plans = [one.plan for some in rounds for one in some]
    counts = {plan: plans.count(plan) for plan in set(plans)}
    return MethodFigures(
        cell=responses[0].cell,
        method=responses[0].method,
        plans=tuple((plan, n / len(plans)) for plan, n in sorted(counts.items(), key=lambda item: -item[1])),
        responses=len(responses),
        tokens=sum(tokens),
        wall_s=per(lambda response: of[id(response)].wall_s),
        charged_s=per(lambda response: of[id(response)].charged_s),
        up_bits=per(lambda response: _bits(response)[0]),
        down_bits=per(lambda response: _bits(response)[1]),
        accepted_fraction=per(accepted, drafted) if sum(drafted) else None,
        accepted_len=per(accepted, drafts) if sum(drafted) else None,
        rounds=per(lambda response: len(response.rounds)),
        row_requests=sum(response.row_requests for response in responses),
    )


def compare(cell: Cell, responses: Sequence[Response], of: dict[int, Seconds]) -> Comparison:
    """Compare by charged seconds; the interval redraws turns (repetition and prompt), common to all methods."""
    turns = sorted({(response.repeat, response.prompt) for response in responses})
    spent, made = ({method: np.zeros(len(turns)) for method in (*FIXED, CHEAPEST)} for _ in range(2))
    for response in responses:
        turn = turns.index((response.repeat, response.prompt))
        spent[response.method][turn] += of[id(response)].charged_s
        made[response.method][turn] += response.tokens
    measured = {method: spent[method].sum() / made[method].sum() for method in FIXED if made[method].sum()}
    best = min(measured, key=measured.__getitem__)
    redrawn = picks(len(turns))

    def resampled(method: str) -> Floats:
        rates: Floats = spent[method][redrawn].sum(1) / made[method][redrawn].sum(1)
        return rates

    cheapest_s = float(spent[CHEAPEST].sum() / made[CHEAPEST].sum())
    low, high = np.quantile(resampled(CHEAPEST) / resampled(best), (0.025, 0.975))
    return Comparison(
        cell, best, measured[best], cheapest_s, Estimate(cheapest_s / measured[best], float(low), float(high))
    )


def plan_name(plan: DraftPlan | None) -> str:
    """Name such as ``tslt 2`` or ``tslt_tree <2,2>``."""
    if plan is None:
        return NO_DRAFT
    shape = f"<{','.join(map(str, plan.expansion))}>" if plan.expansion else str(plan.window)
    return f"{plan.protocol} {shape}"


def _bits(response: Response) -> tuple[int, int]:
    up = sum(one.timing.up_bits for one in response.rounds)
    down = sum(one.timing.down_bits for one in response.rounds)
    if response.row_requests:  # rounds without a taken candidate have no timing
        up += max(response.sent[0] - response.timed[1], 0)
        down += max(response.sent[1] - response.timed[2], 0)
    return up, down


_METHODS: Columns[MethodFigures] = (
    ("method", lambda one: one.method),
    ("drafts", lambda one: ", ".join(f"{plan_name(plan)} {share:.0%}" for plan, share in one.plans[:2])),
    ("ms/token charged", lambda one: one.charged_s.shown(1e3, 1)),
    ("wall", lambda one: one.wall_s.shown(1e3, 1)),
    ("bits up/token", lambda one: f"{one.up_bits.mean:.0f}"),
    ("down/token", lambda one: f"{one.down_bits.mean:.0f}"),
    ("accepted", lambda one: "-" if one.accepted_fraction is None else f"{one.accepted_fraction.mean:.2f}"),
    ("accepted/round", lambda one: "-" if one.accepted_len is None else f"{one.accepted_len.mean:.2f}"),
    ("rounds/token", lambda one: f"{one.rounds.mean:.2f}"),
)
_COMPARISONS: Columns[Comparison] = (
    ("cell", lambda one: one.cell.name),
    ("best fixed", lambda one: one.best),
    ("ms/token", lambda one: f"{one.best_s * 1e3:.1f}"),
    ("cheapest", lambda one: f"{one.cheapest_s * 1e3:.1f}"),
    ("ratio", lambda one: one.ratio),
    ("within 10 %", lambda one: "yes" if one.within_tenth else "NO"),
)


def show_figures(found: Sequence[MethodFigures]) -> None:
    for cell in dict.fromkeys(one.cell for one in found):
        rows = [one for one in found if one.cell == cell]
        show_columns(f"{cell.name} ({rows and found[0].responses} responses per method)", _METHODS, rows)


def show_comparisons(found: Sequence[Comparison]) -> None:
    show_columns("cheapest by charged seconds", _COMPARISONS, found)
