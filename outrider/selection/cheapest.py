"""Policy ``cheapest``: choose the plan with the fewest expected seconds per committed token of this generation."""

from dataclasses import dataclass

from outrider.selection.estimates import Estimates, Floats
from outrider.selection.ranking import DEFAULT_HABITS, SwitchingHysteresis, choose_by
from outrider.selection.situation import RoundChoice, RoundSituation


@dataclass(frozen=True, slots=True)
class Cheapest:
    """Policy over all allowed protocols, windows and tree shapes."""

    habits: SwitchingHysteresis = DEFAULT_HABITS

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """Return the plan of the fewest seconds per token."""
        return choose_by(seconds_per_token, situation, previous, self.habits)


def seconds_per_token(_: RoundSituation, estimates: Estimates) -> Floats:
    """Return the cost of each plan: this generation's own time."""
    return estimates.seconds_per_token
