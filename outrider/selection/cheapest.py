"""Policy ``cheapest``: choose the plan with the fewest expected seconds per committed token of this generation."""

from outrider.selection.estimates import Estimates, Floats
from outrider.selection.ranking import choose_by
from outrider.selection.situation import RoundChoice, RoundSituation


class Cheapest:
    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        return choose_by(seconds_per_token, situation, previous)


def seconds_per_token(_: RoundSituation, estimates: Estimates) -> Floats:
    return estimates.seconds_per_token
