"""The plan with the fewest expected seconds per committed token, re-chosen every round.

*Staying*: estimates are noisy, and a change of plan has small costs of its own; the last plan is kept unless another
is better by more than ``stay_margin``.

*Exploring*: only what is drafted is learned about. Two ways out of a pessimist's corner, both paid from a budget: the
time a try is expected to lose is at most ``exploration_share`` of the time of the rounds since the last one like it, so
what nearly pays is tried often and what does not, seldom.

- Rounds without a draft: a draft is tried unless it would lose even with every token accepted (on a saturated verifier
  nothing is tried). If the whole draft was accepted it lost nothing, and the next round tries again.
- Drafts under one rule: another rule is tried, every few rounds, if it could win.

Which one is tried, and whether it could win, is judged with acceptances ``optimism_deviations`` standard deviations
better than believed: the less is known of a plan, the sooner its turn comes.
"""

from dataclasses import dataclass, replace

import numpy as np

from outrider.engines.drafts import DraftPlan
from outrider.selection.estimates import Estimates, estimate
from outrider.selection.plans import NO_DRAFT, candidate_plans
from outrider.selection.situation import (
    ChoiceReason,
    Estimate,
    RoundChoice,
    RoundSituation,
    longest_window,
    no_draft_reason,
)

_OTHER_RULES_EVERY = 8  # rounds


@dataclass(frozen=True, slots=True)
class Cheapest:
    """Policy ``cheapest``: among all allowed protocols, windows and tree shapes."""

    stay_margin: float = 0.02
    exploration_share: float = 0.005
    optimism_deviations: float = 1.0

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """The next round's plan; a request's own window leaves it the protocol and the shape."""
        last_plan = None if previous is None else previous.chosen.plan
        reason = no_draft_reason(situation)
        if reason is not None:
            return RoundChoice(estimate(situation, NO_DRAFT, last_plan).at(0), None, reason)
        plans = candidate_plans(
            situation.protocols, longest_window(situation), situation.window is not None, situation.expansion
        )
        estimates = estimate(situation, plans, last_plan)
        index = int(estimates.seconds_per_token.argmin())
        reason = ChoiceReason.CHEAPEST if len(plans.plans) > 1 else ChoiceReason.FIXED
        kept = self._kept(estimates, index, previous)
        if kept is not None and kept != index:
            index, reason = kept, ChoiceReason.KEPT
        tried = self._tried(estimates, index, situation, last_plan)
        if tried is not None:
            index, reason = tried, ChoiceReason.EXPLORING
        return RoundChoice(estimates.at(index), _runner_up(estimates, index), reason)

    def _kept(self, estimates: Estimates, best: int, previous: RoundChoice | None) -> int | None:
        """The last round's plan, if it was chosen for its cost and is still about as good as the best."""
        if previous is None or previous.reason not in {ChoiceReason.CHEAPEST, ChoiceReason.KEPT}:
            return None
        index = estimates.plans.index.get(previous.chosen.plan)
        if index is None:
            return None
        seconds = estimates.seconds_per_token
        return index if seconds[index] <= (1.0 + self.stay_margin) * seconds[best] else None

    def _tried(
        self, estimates: Estimates, best: int, situation: RoundSituation, last_plan: DraftPlan | None
    ) -> int | None:
        """The draft to try although another plan is cheaper."""
        acceptance, seconds, round_s = situation.acceptance, estimates.seconds_per_token, estimates.round_s
        windows = estimates.windows
        if windows[best] == 0:
            idle_rounds = acceptance.idle_rounds.min()
            possible = (windows > 0) & (round_s < round_s[best] * (windows + 1))
        else:
            idle_rounds = acceptance.idle_rounds.take(estimates.rules)
            possible = (windows > 0) & (estimates.rules != estimates.rules[best])
            if idle_rounds.max() % _OTHER_RULES_EVERY != _OTHER_RULES_EVERY - 1:
                return None
        if windows[best] > 0 or acceptance.streak == 0:
            lost_s = round_s - seconds[best] * estimates.expected_tokens
            possible &= lost_s <= self.exploration_share * idle_rounds * round_s[best]
        if not possible.any():
            return None
        hoped = replace(situation, acceptance=acceptance.optimistic(self.optimism_deviations))
        hoped_seconds = np.where(possible, estimate(hoped, estimates.plans, last_plan).seconds_per_token, np.inf)
        index = int(hoped_seconds.argmin())
        return index if windows[best] == 0 or hoped_seconds[index] < seconds[best] else None


def _runner_up(estimates: Estimates, chosen: int) -> Estimate | None:
    if len(estimates.plans.plans) == 1:
        return None
    seconds = estimates.seconds_per_token.copy()
    seconds[chosen] = np.inf
    return estimates.at(int(seconds.argmin()))
