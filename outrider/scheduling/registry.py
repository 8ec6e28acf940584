"""Map the names of scheduling policies in configuration and scenarios to policies."""

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.policy import SchedulingPolicy
from outrider.scheduling.slo_aware import SloAware
from outrider.scheduling.wisp import Doomed, Wisp


@dataclass(frozen=True, slots=True)
class Scheduling:
    """A policy and the rule of the deadlines it plans by."""

    policy: SchedulingPolicy
    deadlines: DeadlineRule = DeadlineRule.LEDGER


SCHEDULING: Mapping[str, Scheduling] = {
    "slo_aware": Scheduling(SloAware()),
    "wisp": Scheduling(Wisp(), DeadlineRule.ROUND),
    "wisp_alone": Scheduling(Wisp(doomed=Doomed.ALONE), DeadlineRule.ROUND),
    "wisp_fair": Scheduling(Wisp(doomed=Doomed.LAST, marginal=True), DeadlineRule.ROUND),
    "fcfs": Scheduling(Fcfs()),
}
