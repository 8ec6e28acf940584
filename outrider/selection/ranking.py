"""Choose the plan of least cost per committed token in every round, with hysteresis and exploration, for any cost.

*Staying*: estimates are noisy, and a change of plan has a small cost. So the last plan is kept unless another one is
better by more than ``_STAY_MARGIN``.

*Exploring*: acceptance is learned only from what is drafted, so an estimate that is too low would never be corrected.
In three cases another plan is tried. The first and the third are paid from a budget: the expected loss of a trial is at
most ``_EXPLORATION_SHARE`` of the cost of the rounds since the last similar one.

- After rounds without a draft, one is tried unless it would lose even with every token accepted (on a saturated
  verifier none is). If the whole draft was accepted, the trial lost nothing, and the next round tries again.
- While almost nothing is known of a rule, a draft that could win is tried whatever it costs: otherwise a few unlucky
  rejections at the beginning would end drafting for long.
- Where all drafts are under one rule, another rule that could win is tried every few rounds.

Which plan is tried, and whether it could win, is judged with acceptances raised by ``_OPTIMISM_DEVIATIONS`` standard
deviations (an upper confidence bound): the less is known of a plan, the sooner it is tried.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from outrider.selection.estimates import Bools, Estimates, Floats, estimate, estimate_without_draft
from outrider.selection.plans import candidate_plans
from outrider.selection.situation import (
    ChoiceReason,
    Estimate,
    RoundChoice,
    RoundSituation,
    longest_window,
    no_draft_reason,
)

_STAY_MARGIN = 0.02
_EXPLORATION_SHARE = 0.005
_OPTIMISM_DEVIATIONS = 1.0
_OTHER_RULES_EVERY = 8  # rounds
_NEXT_TO_NOTHING = 0.1  # standard deviation of a first token's acceptance after some twenty tokens; above: unknown

# Cost per committed token of each plan; infinite where a plan is excluded (never all of them).
Cost = Callable[[RoundSituation, Estimates], Floats]


def choose_by(cost: Cost, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
    """Return the next round's plan. A window fixed by the request leaves protocol and shape to choose."""
    last_plan = None if previous is None else previous.chosen.plan
    reason = no_draft_reason(situation)
    if reason is not None:
        return RoundChoice(estimate_without_draft(situation, last_plan), None, reason)
    plans = candidate_plans(
        situation.protocols,
        longest_window(situation),
        situation.window is not None,
        situation.expansion,
        situation.grown_rows,
        situation.most_grown,
        chains_only=situation.drafter is not None and situation.drafter.chains_only,
    )
    estimates = estimate(situation, plans, last_plan)
    costs = cost(situation, estimates)
    index = int(costs.argmin())
    reason = ChoiceReason.CHEAPEST if len(plans.plans) > 1 else ChoiceReason.FIXED
    kept = _kept(estimates, costs, index, previous)
    if kept is not None and kept != index:
        index, reason = kept, ChoiceReason.KEPT
    paid = _worth_a_try(estimates, costs, index, situation)
    possible = paid | _hardly_known(estimates, costs, index, situation)
    if possible.any():
        hoped = replace(situation, acceptance=situation.acceptance.optimistic(_OPTIMISM_DEVIATIONS))
        hoped_costs = cost(hoped, estimate(hoped, plans, last_plan))
        could_win = hoped_costs < costs[index]
        value = (possible & could_win) | (paid & (estimates.windows[index] == 0))
        if value.any():
            index, reason = int(np.where(value, hoped_costs, np.inf).argmin()), ChoiceReason.EXPLORING
    return RoundChoice(estimates.at(index), _runner_up(estimates, costs, index), reason)


def _kept(estimates: Estimates, costs: Floats, best: int, previous: RoundChoice | None) -> int | None:
    """Return the index of the last plan, if it was chosen for its cost and is within the margin of the best."""
    if previous is None or previous.reason not in {ChoiceReason.CHEAPEST, ChoiceReason.KEPT}:
        return None
    index = estimates.plans.index.get(previous.chosen.plan)
    if index is None:
        return None
    return index if costs[index] <= (1.0 + _STAY_MARGIN) * costs[best] else None


def _worth_a_try(estimates: Estimates, costs: Floats, best: int, situation: RoundSituation) -> Bools:
    """Return ``[plans]``: whether a draft may be tried, within the budget, although another plan is cheaper."""
    acceptance, windows = situation.acceptance, estimates.windows
    round_costs = costs * estimates.expected_tokens
    possible: Bools = (windows > 0) & np.isfinite(costs)
    if windows[best] == 0:
        idle_rounds = acceptance.idle_rounds.min()
        # With every token accepted the round would commit windows + 1 tokens; only then it can be cheaper.
        possible &= round_costs < round_costs[best] * (windows + 1)
    else:
        idle_rounds = acceptance.idle_rounds.take(estimates.rules)
        possible &= estimates.rules != estimates.rules[best]
        possible &= idle_rounds.max() % _OTHER_RULES_EVERY == _OTHER_RULES_EVERY - 1
    if windows[best] > 0 or acceptance.streak == 0:  # after a draft accepted whole, the next trial is free
        lost = round_costs - costs[best] * estimates.expected_tokens
        possible &= lost <= _EXPLORATION_SHARE * idle_rounds * round_costs[best]
    return possible


def _hardly_known(estimates: Estimates, costs: Floats, best: int, situation: RoundSituation) -> Bools:
    """Return ``[plans]``: drafts whose acceptance is almost unknown; none if the best plan has a draft."""
    unsure: Bools = situation.acceptance.deviations[:, 0].take(estimates.rules) > _NEXT_TO_NOTHING
    possible: Bools = unsure & (estimates.windows > 0) & np.isfinite(costs) & (estimates.windows[best] == 0)
    return possible


def _runner_up(estimates: Estimates, costs: Floats, chosen: int) -> Estimate | None:
    """Return the best plan that was not chosen; where all others are excluded, the fastest of them."""
    if len(estimates.plans.plans) == 1:
        return None
    others = np.arange(len(costs)) != chosen
    ranks = costs if np.isfinite(costs[others]).any() else estimates.seconds_per_token
    return estimates.at(int(np.where(others, ranks, np.inf).argmin()))
