"""Cut the drafts that join a step: how many draft tokens of each are verified. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from outrider.contracts.chunks import pass_costs
from outrider.contracts.cost import CostModel, VerifyCost, work_of
from outrider.contracts.requests import GenerationId
from outrider.scheduling.policy import PendingVerification
from outrider.scheduling.trimming import Chain, idle_s, rows_worth_verifying, trim

_ENOUGH_SLACK_S = 1.0  # slack from which a draft is cut without regard to its own promise
_DEVICE_TOKENS = 1.0  # tokens promised in the time away from the verifier: below, the verifier sets the round's length
_STEPS = 2.0  # steps that a round takes at the verifier, half of that time waiting for the one under way


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
    """Return what one step computes of these blocks."""
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
