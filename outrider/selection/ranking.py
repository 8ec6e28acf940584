"""Pick the plan with the smallest cost per committed token, with hysteresis, re-evaluated every round.

*Staying*: estimates are noisy, and a change of plan has small costs of its own; the last plan is kept unless another
is better by more than ``stay_margin``.

*Exploring*: only what is drafted is learned about. Ways out of a pessimist's corner, but for the second paid from a
budget: what a try is expected to lose is at most ``exploration_share`` of the cost of the rounds since the last one
like it, so what nearly pays is tried often and what does not, seldom.

- Rounds without a draft: a draft is tried unless it would lose even with every token accepted (on a saturated verifier
  nothing is tried). If the whole draft was accepted it lost nothing, and the next round tries again.
- While next to nothing is known of a rule, a draft that could win is tried whatever it costs: a few unlucky rejections
  at the beginning would else be the last word for long.
- Drafts under one rule: another rule is tried, every few rounds, if it could win.

Which one is tried, and whether it could win, is judged with acceptances ``optimism_deviations`` standard deviations
better than believed: the less is known of a plan, the sooner its turn comes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from outrider.selection.estimates import Bools, Estimates, Floats, estimate, estimate_alone
from outrider.selection.plans import candidate_plans
from outrider.selection.situation import (
    ChoiceReason,
    Estimate,
    RoundChoice,
    RoundSituation,
    longest_window,
    no_draft_reason,
)

_OTHER_RULES_EVERY = 8  # rounds
_NEXT_TO_NOTHING = 0.1  # standard deviation of a first token's acceptance: some twenty tokens were seen

# Cost per committed token of each plan; infinite where a plan is out of the question (never of all).
Cost = Callable[[RoundSituation, Estimates], Floats]


@dataclass(frozen=True, slots=True)
class SwitchingHysteresis:
    stay_margin: float = 0.02
    exploration_share: float = 0.005
    optimism_deviations: float = 1.0


DEFAULT_HABITS = SwitchingHysteresis()


def choose_by(
    cost: Cost, situation: RoundSituation, previous: RoundChoice | None, habits: SwitchingHysteresis
) -> RoundChoice:
    """The next round's plan; a request's own window leaves it the protocol and the shape."""
    last_plan = None if previous is None else previous.chosen.plan
    reason = no_draft_reason(situation)
    if reason is not None:
        return RoundChoice(estimate_alone(situation, last_plan), None, reason)
    plans = candidate_plans(
        situation.protocols,
        longest_window(situation),
        situation.window is not None,
        situation.expansion,
        situation.grown_rows,
        situation.most_grown,
    )
    estimates = estimate(situation, plans, last_plan)
    costs = cost(situation, estimates)
    index = int(costs.argmin())
    reason = ChoiceReason.CHEAPEST if len(plans.plans) > 1 else ChoiceReason.FIXED
    kept = _kept(estimates, costs, index, previous, habits)
    if kept is not None and kept != index:
        index, reason = kept, ChoiceReason.KEPT
    paid = _worth_a_try(estimates, costs, index, situation, habits)
    possible = paid | _hardly_known(estimates, costs, index, situation)
    if possible.any():
        hoped = replace(situation, acceptance=situation.acceptance.optimistic(habits.optimism_deviations))
        hoped_costs = cost(hoped, estimate(hoped, plans, last_plan))
        could_win = hoped_costs < costs[index]
        value = (possible & could_win) | (paid & (estimates.windows[index] == 0))
        if value.any():
            index, reason = int(np.where(value, hoped_costs, np.inf).argmin()), ChoiceReason.EXPLORING
    return RoundChoice(estimates.at(index), _runner_up(estimates, costs, index), reason)


def _kept(
    estimates: Estimates, costs: Floats, best: int, previous: RoundChoice | None, habits: SwitchingHysteresis
) -> int | None:
    """The last round's plan, if it was chosen for its cost and is still about as good as the best."""
    if previous is None or previous.reason not in {ChoiceReason.CHEAPEST, ChoiceReason.KEPT}:
        return None
    index = estimates.plans.index.get(previous.chosen.plan)
    if index is None:
        return None
    return index if costs[index] <= (1.0 + habits.stay_margin) * costs[best] else None


def _worth_a_try(
    estimates: Estimates, costs: Floats, best: int, situation: RoundSituation, habits: SwitchingHysteresis
) -> Bools:
    """Which drafts may be tried although another plan is cheaper."""
    acceptance, windows = situation.acceptance, estimates.windows
    round_costs = costs * estimates.expected_tokens
    possible: Bools = (windows > 0) & np.isfinite(costs)
    if windows[best] == 0:
        idle_rounds = acceptance.idle_rounds.min()
        possible &= round_costs < round_costs[best] * (windows + 1)
    else:
        idle_rounds = acceptance.idle_rounds.take(estimates.rules)
        possible &= estimates.rules != estimates.rules[best]
        possible &= idle_rounds.max() % _OTHER_RULES_EVERY == _OTHER_RULES_EVERY - 1
    if windows[best] > 0 or acceptance.streak == 0:
        lost = round_costs - costs[best] * estimates.expected_tokens
        possible &= lost <= habits.exploration_share * idle_rounds * round_costs[best]
    return possible


def _hardly_known(estimates: Estimates, costs: Floats, best: int, situation: RoundSituation) -> Bools:
    """Drafts whose acceptance is a guess, where nothing would be drafted."""
    unsure: Bools = situation.acceptance.deviations[:, 0].take(estimates.rules) > _NEXT_TO_NOTHING
    possible: Bools = unsure & (estimates.windows > 0) & np.isfinite(costs) & (estimates.windows[best] == 0)
    return possible


def _runner_up(estimates: Estimates, costs: Floats, chosen: int) -> Estimate | None:
    """The next best; the fastest where all others are out of the question."""
    if len(estimates.plans.plans) == 1:
        return None
    others = np.arange(len(costs)) != chosen
    ranks = costs if np.isfinite(costs[others]).any() else estimates.seconds_per_token
    return estimates.at(int(np.where(others, ranks, np.inf).argmin()))
