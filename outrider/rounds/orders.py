"""Orders for drafts, and the rounds that they are made for."""

from outrider.contracts.drafting import DraftPlan
from outrider.rounds.choice import RoundChooser
from outrider.rounds.events import AskDrafter
from outrider.rounds.open_round import OpenRound
from outrider.rounds.promise_tracker import PromiseTracker
from outrider.rounds.rules import LINK_PATIENCE
from outrider.selection.situation import Estimate


def drafted_round(
    number: int, began_at_s: float, plan: DraftPlan, estimate: Estimate, chooser: RoundChooser, tracker: PromiseTracker
) -> tuple[OpenRound, AskDrafter]:
    allowed_s, survivals = LINK_PATIENCE * estimate.round_s, chooser.survivals(plan)
    whole = chooser.must_stay_whole(plan)
    round_ = OpenRound(number, began_at_s, plan, estimate.expected_tokens, allowed_s, survivals, whole)
    must_use, price = chooser.must_use(plan), chooser.price(estimate)
    due_at_s = tracker.deadline_at_s(began_at_s, estimate.expected_tokens)
    return round_, AskDrafter(number, plan, None, allowed_s, must_use, estimate.exchange_s, price, due_at_s)
