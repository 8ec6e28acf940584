"""Decide how much of the drafts in a step is verified: rows by survival, while they raise tokens per second. Pure.

The gain of a row is its survival, the probability that its token is accepted with all before it. Its price is what it
adds to the step's time. Rows are taken in falling order of survival, which takes a front of each chain; the set of
fronts is kept that commits most tokens per second. If time grows linearly with rows, the cut is where survival falls
below a row's seconds times tokens per second. A cost model with jumps may be better behind a jump, so all lengths are
compared.

A second of the step is not always a second of the service. While the verifier would be idle behind the step, a longer
step delays only its own blocks. ``idle_s`` computes that idle time.

Survivals are estimates from past verdicts, made before the draft is drawn. No decision here depends on a drafted token,
which keeps ratio rules exact.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain as joined
from math import inf

import numpy as np
import numpy.typing as npt

from outrider.contracts.chunks import pass_costs
from outrider.contracts.cost import BatchWork, CostModel, VerifyCost, work_of
from outrider.contracts.requests import GenerationId
from outrider.scheduling.policy import PendingVerification

# relative gain below which nothing is cut: estimates are no better, and the draft is already paid for
_LEAST_GAIN = 0.01
_ENOUGH_SLACK_S = 1.0  # slack from which a draft is cut without regard to its own promise
_DEVICE_TOKENS = 1.0  # tokens promised in the time away from the verifier: below, the verifier sets the round's length
_STEPS = 2.0  # steps that a round takes at the verifier, half of that time waiting for the one under way


@dataclass(frozen=True, slots=True)
class Chain:
    cost: VerifyCost  # of all its rows
    survivals: tuple[float, ...]  # falling; of the draft's rows, the last rows of ``cost``


@dataclass(frozen=True, slots=True)
class Trim:
    kept: tuple[int, ...]  # draft tokens to verify of each chain
    min_survival: float = 0.0  # highest survival that did not pay for its row; rows above it did. 0 if nothing was cut


def trim(
    chains: Sequence[Chain],
    others: BatchWork,
    other_tokens: float,
    idle_s: float,
    model: CostModel,
) -> Trim:
    """Cut the chains of one step, each of which commits one token even without a draft.

    ``others`` is the work of everything else in the step, of which ``other_tokens`` are expected. ``idle_s`` is the
    verifier's idle time behind the step, taken as independent of its length.
    """
    whole = tuple(len(chain.survivals) for chain in chains)
    if not any(whole):
        return Trim(whole)
    (new, interactions, read), first_row_interactions = others, list[int]()
    for chain in chains:
        fixed, cached = chain.cost.new_tokens - len(chain.survivals), chain.cost.cached_tokens
        new, interactions, read = new + fixed, interactions + (fixed + cached) * fixed, read + cached
        # Row n + 1 adds (n + 1 + cached) (n + 1) - (n + cached) n = cached + 2 n + 1 interactions (WISP eq. 18). The
        # rows of a draft begin at n = fixed.
        first_row_interactions.append(cached + 2 * fixed + 1)
    drafted = np.array(whole)
    owners = np.arange(len(chains)).repeat(drafted)
    depths = np.arange(owners.size) - (drafted.cumsum() - drafted)[owners]
    survivals = np.fromiter(joined.from_iterable(chain.survivals for chain in chains), np.float64, owners.size)
    by_survival: npt.NDArray[np.int64] = np.argsort(-survivals, kind="stable")
    falling = survivals[by_survival]
    works = np.zeros((owners.size + 1, 3))  # the step without drafts, then what each row adds
    works[0] = new, interactions, read
    works[1:, 0] = 1.0
    works[1:, 1] = (np.array(first_row_interactions)[owners] + 2 * depths)[by_survival]
    # Entry k of both: the step with the k rows of highest survival.
    tokens = other_tokens + len(chains) + np.concatenate(([0.0], falling.cumsum()))
    per_s = tokens / (model.predict_works_s(works.cumsum(axis=0)) + idle_s)
    best = owners.size - int(per_s[::-1].argmax())  # of equal maxima the most rows
    if per_s[best] < (1.0 + _LEAST_GAIN) * per_s[-1]:
        return Trim(whole)
    kept = np.bincount(owners[by_survival[:best]], minlength=len(chains))
    return Trim(tuple(kept.tolist()), float(falling[best]))


def rows_worth_verifying(survivals: Sequence[float], min_survival: float) -> int:
    return sum(survival > min_survival for survival in survivals)


def idle_s(step_s: float, members: Sequence[tuple[float, float]], coming_s: Sequence[float]) -> float:
    """Return how long the verifier will be idle behind a step, if rounds go on as they have.

    A longer step costs the tokens that the delayed responses would have committed meanwhile: those in the step, those
    that wait, and those that arrive before the verifier is idle. The result is the time by which the step's tokens per
    second equal that rate.

    Args:
        step_s: time of the step.
        members: for each block in the step, its expected tokens and the seconds of its round before the step.
        coming_s: arrivals of others in seconds from the step's beginning, rising; 0 if they wait already.
    """
    if not members:
        return 0.0
    # Whoever arrives while the verifier is busy needs another step, in which more may arrive.
    busy_s, delayed = step_s, 0
    while (found := bisect_right(coming_s, busy_s)) > delayed:
        busy_s, delayed = busy_s + step_s, found
    each_s = sum(tokens / (step_s + before_s) for tokens, before_s in members)
    # Delayed responses are taken to commit as much on average as those in the step.
    all_s = each_s * (1.0 + delayed / len(members))
    return max(0.0, sum(tokens for tokens, _ in members) / all_s - step_s)


@dataclass(frozen=True, slots=True)
class StepMember:
    block: PendingVerification
    prefill_tokens: int  # positions still to compute in chunks; with any, it commits nothing in this step
    joins: bool  # it waited until now, so its draft may be cut


@dataclass(frozen=True, slots=True)
class Cuts:
    """Draft tokens to verify of the drafts that are cut, and the survival above which a row paid for its time."""

    tokens: tuple[tuple[GenerationId, int], ...] = ()
    min_survival: float = 0.0


def cut_drafts(
    members: Sequence[StepMember],
    coming_s: Sequence[float],
    now_s: float,
    cost_model: CostModel,
    chunk_tokens: int,
    *,
    all_kept: bool,
) -> Cuts:
    """Cut the drafts of joining members.

    Args:
        members: all blocks of the step.
        coming_s: arrivals of others in seconds from now, rising; 0 if they wait already.
        now_s: on the clock of the blocks' deadlines.
        cost_model: predicts the step's time.
        chunk_tokens: prefix positions computed in one step.
        all_kept: all promises can be kept; then each draft keeps the rows that its promise needs.
    """
    deciding = [member for member in members if not member.prefill_tokens]
    chains = [member.block for member in deciding if member.block.survivals and member.joins]
    if not chains:
        return Cuts()
    others = [member for member in deciding if not (member.block.survivals and member.joins)]
    computed = _costs(others, chunk_tokens)
    cold = _costs([member for member in members if member.prefill_tokens], chunk_tokens)
    # Prefixes count in the step's length but not in the price of a row (docs/design/0036): their time is spent
    # sooner or later whatever is cut.
    step_s = cost_model.predict_s([*computed, *cold, *(block.cost for block in chains)])
    rounds = [(member.block.expected_tokens, _elapsed_s(member, now_s)) for member in deciding]
    wasted_s = idle_s(step_s, rounds, coming_s)
    other_tokens = sum((member.block.expected_tokens for member in others), 0.0)
    drafted = [Chain(block.cost, block.survivals) for block in chains]
    found = trim(drafted, work_of(computed), other_tokens, wasted_s, cost_model)
    cuts = []
    for block, tokens in zip(chains, found.kept, strict=True):
        if block.min_survival is not None:  # ratio rules: fixed when the draft was ordered
            kept = rows_worth_verifying(block.survivals, block.min_survival)
        else:
            kept = max(tokens, _needed(block, now_s, step_s)) if all_kept else tokens
        if kept < len(block.survivals):
            cuts.append((block.generation, kept))
    return Cuts(tuple(cuts), found.min_survival)


def _costs(members: Sequence[StepMember], chunk_tokens: int) -> list[VerifyCost]:
    costs = [(member.block.cost, member.block.cost.new_tokens - member.prefill_tokens) for member in members]
    return pass_costs(costs, chunk_tokens)


def _needed(block: PendingVerification, now_s: float, step_s: float) -> int:
    """Return the draft tokens that a promise needs, where the device's time sets the length of a round; else 0.

    Elsewhere the verifier sets it, and verifying less shortens the rounds of all.
    """
    if block.tokens_per_s * block.elapsed_s < _DEVICE_TOKENS or block.deadline_at_s == inf:
        return 0
    # The deadline assumes the block's expected tokens; without them this is the response's present slack.
    slack_s = block.deadline_at_s - block.expected_tokens / block.tokens_per_s - now_s
    if slack_s >= _ENOUGH_SLACK_S:
        return 0
    needed_tokens = block.tokens_per_s * (block.elapsed_s + _STEPS * step_s)
    # 1: the correction or bonus token. Survivals add up to expected accepted tokens.
    tokens, kept = 1.0, 0
    for survival in block.survivals:
        if tokens >= needed_tokens:
            break
        tokens, kept = tokens + survival, kept + 1
    return kept


def _elapsed_s(member: StepMember, now_s: float) -> float:
    """Return the seconds that its round took before the step; of a joining block up to now."""
    block = member.block
    return block.elapsed_s + (max(0.0, now_s - block.arrived_at_s) if member.joins else 0.0)
