"""Policy ``wisv_rule``: WISV's rule (section VII) of full upload of hidden states where the round trip is long."""

from dataclasses import replace

from outrider.protocols.registry import PROTOCOLS
from outrider.selection.cheapest import seconds_per_token
from outrider.selection.ranking import choose_by
from outrider.selection.situation import RoundChoice, RoundSituation

LONG_RTT_S = 0.01


class WisvRule:
    """Chooses between full and selective upload by the RTT, then the cheapest plan of that protocol."""

    def choose(self, situation: RoundSituation, previous: RoundChoice | None) -> RoundChoice:
        """Return the plan; where not both uploads are allowed, the same as ``cheapest``."""
        allowed, drafter = situation.protocols, situation.drafter
        full = [name for name in allowed if PROTOCOLS[name].judged and PROTOCOLS[name].second_step is None]
        selective = [name for name in allowed if PROTOCOLS[name].judged and PROTOCOLS[name].second_step is not None]
        if drafter is not None and drafter.csi is not None and full and selective:
            uploads = full if drafter.csi.rtt_s > LONG_RTT_S else selective
            situation = replace(situation, protocols=tuple(uploads))
        return choose_by(seconds_per_token, situation, previous)
