"""How much of what was drafted is worth verifying: rows by survival, as long as they pay for their time.

A row brings its survival, the probability that its token is accepted with all before it, and takes what it adds to the
step. Rows are taken in order of survival, so of each chain a front; of all these fronts the one is kept that commits
most tokens per second. Where seconds grow evenly with rows that is where a row's survival falls below its seconds times
the tokens of a second; a cost model with jumps is looked at behind them.

A second of the step is not always a second of the service: while the verifier would have nothing to do behind a step,
a longer one delays its own members only. ``idle_s`` says how much of that there is.

Pure: survivals are estimates from past verdicts, known before a draft is drawn. Nothing here can see a token.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain as joined
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from outrider.contracts.cost import BatchWork, CostModel, VerifyCost

_FEW_ROWS = 40  # from about as many on arrays are faster
_LEAST_GAIN = 0.01  # of the tokens per second: estimates are no better than that, and what is drafted is paid for


@dataclass(frozen=True, slots=True)
class Chain:
    """A block that may be cut."""

    cost: VerifyCost  # of all its rows
    survivals: tuple[float, ...]  # falling; of its draft's rows, which are the last of ``cost``


@dataclass(frozen=True, slots=True)
class Trim:
    """How much is verified.

    Attributes:
        kept: draft tokens of each chain.
        min_survival: survival of the first row that was not worth its time, rows above which are; 0 where all were.
    """

    kept: tuple[int, ...]
    min_survival: float = 0.0


def trim(
    chains: Sequence[Chain],
    others: BatchWork,
    other_tokens: float,
    idle_s: float,
    model: CostModel,
    few_rows: int = _FEW_ROWS,
) -> Trim:
    """Cut the chains of one step.

    Args:
        chains: that may be cut, each of which brings one token without its draft.
        others: what else the step computes.
        other_tokens: expected of that.
        idle_s: that the verifier waits behind the step, however long that is.
        model: of the step's time.
        few_rows: so many are looked at without arrays, which changes how long it takes and nothing else.
    """
    whole = tuple(len(chain.survivals) for chain in chains)
    if not any(whole):
        return Trim(whole)
    base, first_row_interactions = others, list[int]()
    for chain in chains:
        fixed, cached = chain.cost.new_tokens - len(chain.survivals), chain.cost.cached_tokens
        base = base.plus(VerifyCost(fixed, cached))
        first_row_interactions.append(cached + 2 * fixed + 1)
    if sum(whole) <= few_rows:
        return _trim_small(chains, whole, base, first_row_interactions, other_tokens, idle_s, model)
    drafted = np.array(whole)
    owners = np.arange(len(chains)).repeat(drafted)
    depths = np.arange(owners.size) - (drafted.cumsum() - drafted)[owners]
    survivals = np.fromiter(joined.from_iterable(chain.survivals for chain in chains), np.float64, owners.size)
    by_survival: npt.NDArray[np.int64] = np.argsort(-survivals, kind="stable")
    falling = survivals[by_survival]
    works = np.zeros((owners.size + 1, 3))  # of the step without drafts, then what each row adds
    works[0] = base.new_tokens, base.interactions, base.cached_tokens
    works[1:, 0] = 1.0
    works[1:, 1] = (np.array(first_row_interactions)[owners] + 2 * depths)[by_survival]
    tokens = other_tokens + len(chains) + np.concatenate(([0.0], falling.cumsum()))
    per_s = tokens / (model.predict_works_s(works.cumsum(axis=0)) + idle_s)
    best = owners.size - int(per_s[::-1].argmax())  # the most rows of equal ones
    if per_s[best] < (1.0 + _LEAST_GAIN) * per_s[-1]:
        return Trim(whole)
    kept = np.bincount(owners[by_survival[:best]], minlength=len(chains))
    return Trim(tuple(kept.tolist()), float(falling[best]))


def _trim_small(
    chains: Sequence[Chain],
    whole: tuple[int, ...],
    base: BatchWork,
    first_row_interactions: Sequence[int],
    other_tokens: float,
    idle_s: float,
    model: CostModel,
) -> Trim:
    """The same without arrays, which cost more than so few rows do."""
    rows = [
        (-survival, owner, first_row_interactions[owner] + 2 * depth)
        for owner, chain in enumerate(chains)
        for depth, survival in enumerate(chain.survivals)
    ]
    rows.sort(key=itemgetter(0))  # of equals the first
    new, interactions, cached = base
    tokens_without, survived, predict_s = other_tokens + len(chains), 0.0, model.predict_work_s
    per_s = [tokens_without / (predict_s(base) + idle_s)]
    for falling, _, row_interactions in rows:
        new, interactions, survived = new + 1, interactions + row_interactions, survived - falling
        per_s.append((tokens_without + survived) / (predict_s(BatchWork(new, interactions, cached)) + idle_s))
    most = max(per_s)
    if most < (1.0 + _LEAST_GAIN) * per_s[-1]:
        return Trim(whole)
    best = len(rows) - per_s[::-1].index(most)  # the most rows of equal ones
    kept = [0] * len(chains)
    for _, owner, _ in rows[:best]:
        kept[owner] += 1
    return Trim(tuple(kept), -rows[best][0])


def rows_worth_verifying(survivals: Sequence[float], min_survival: float) -> int:
    """How many rows of a chain survive more often than that."""
    return sum(survival > min_survival for survival in survivals)


def idle_s(step_s: float, members: Sequence[tuple[float, float]], coming_s: Sequence[float]) -> float:
    """How long the verifier waits behind a step, if rounds go on as they have.

    Whoever a step delays loses what it would have committed meanwhile: its members, who waits, and whoever comes before
    the verifier is idle again. These tokens per second, against those of the step, tell how much of a second counts.

    Args:
        step_s: of the step.
        members: expected tokens of each, and the seconds of its round before the step.
        coming_s: when others come, from the step's beginning on; 0 waits already. Rising.
    """
    if not members:
        return 0.0
    busy_s, delayed = step_s, 0
    while (found := bisect_right(coming_s, busy_s)) > delayed:
        busy_s, delayed = busy_s + step_s, found
    each_s = sum(tokens / (step_s + before_s) for tokens, before_s in members)
    all_s = each_s * (1.0 + delayed / len(members))
    return max(0.0, sum(tokens for tokens, _ in members) / all_s - step_s)
