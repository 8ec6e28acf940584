"""The configured protocol, window and tree shape in every round; no draft without a drafter."""

from outrider.selection.estimates import estimate
from outrider.selection.plans import NO_DRAFT, fixed_plan
from outrider.selection.situation import (
    ChoiceReason,
    RoundChoice,
    RoundSituation,
    longest_window,
    no_draft_reason,
)


class Fixed:
    """Policy ``fixed``: the first allowed protocol. Without a fixed window it drafts ``k_max`` tokens."""

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """The one plan there is."""
        reason = no_draft_reason(situation)
        plans = NO_DRAFT
        if reason is None:
            plans = fixed_plan(situation.protocols[0], longest_window(situation), situation.expansion)
        last_plan = None if previous is None else previous.chosen.plan
        return RoundChoice(estimate(situation, plans, last_plan).at(0), None, reason or ChoiceReason.FIXED)
