"""Policy ``fixed``: use the configured protocol, window and tree shape in every round that has a drafter."""

from outrider.selection.estimates import estimate, estimate_without_draft
from outrider.selection.plans import fixed_plan
from outrider.selection.situation import ChoiceReason, RoundChoice, RoundSituation, longest_window, no_draft_reason


class Fixed:
    """Uses the first allowed protocol. Without a fixed window it drafts ``k_max`` tokens."""

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        last_plan = None if previous is None else previous.chosen.plan
        reason = no_draft_reason(situation)
        if reason is not None:
            return RoundChoice(estimate_without_draft(situation, last_plan), None, reason)
        protocol, longest = situation.protocols[0], longest_window(situation)
        plans = fixed_plan(protocol, longest, situation.expansion, situation.grown_rows)
        return RoundChoice(estimate(situation, plans, last_plan).at(0), None, ChoiceReason.FIXED)
