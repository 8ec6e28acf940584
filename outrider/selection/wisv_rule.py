"""Policy ``wisv_rule`` (WISV section VII): upload all hidden states at once where the round trip is long."""

from dataclasses import dataclass, replace

from outrider.protocols.registry import PROTOCOLS
from outrider.selection.cheapest import seconds_per_token
from outrider.selection.ranking import DEFAULT_HABITS, SwitchingHysteresis, choose_by
from outrider.selection.situation import RoundChoice, RoundSituation

LONG_RTT_S = 0.01


@dataclass(frozen=True, slots=True)
class WisvRule:
    """Policy ``wisv_rule``: where both are allowed, the upload by the round trip, and of its plans the cheapest."""

    habits: SwitchingHysteresis = DEFAULT_HABITS

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """Without both uploads to choose from it is ``cheapest``."""
        allowed, drafter = situation.protocols, situation.drafter
        full = [name for name in allowed if PROTOCOLS[name].judged and PROTOCOLS[name].second_step is None]
        selective = [name for name in allowed if PROTOCOLS[name].judged and PROTOCOLS[name].second_step is not None]
        if drafter is not None and drafter.csi is not None and full and selective:
            uploads = full if drafter.csi.rtt_s > LONG_RTT_S else selective
            situation = replace(situation, protocols=tuple(uploads))
        return choose_by(seconds_per_token, situation, previous, self.habits)
