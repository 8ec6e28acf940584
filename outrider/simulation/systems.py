"""What makes one system differ from another: a row of a table; the event loop is the same for all.

``centralized`` and ``colocated`` plan inside the engine: nothing to send. The others plan at a coordinator, while the
verifier steps by itself (as the product does).
"""

from dataclasses import dataclass, replace

from outrider.scheduling.registry import SCHEDULING, Scheduling
from outrider.scheduling.steps import StepRules
from outrider.simulation.scenario import Scenario, System

_AS_PUBLISHED = StepRules(trims=False, holds=False)


@dataclass(frozen=True, slots=True)
class SystemRules:
    """How one system works.

    Attributes:
        keeps_kv: KV stays resident between verifications; if not, each computes the whole prefix, in one pass.
    """

    scheduling: Scheduling  # plans its batches
    keeps_kv: bool = True
    speculates: bool = True  # anything is drafted
    drafts_on_server: bool = False  # in the batch's own time, without a link
    in_engine: bool = False  # batches are planned where they run
    steps: StepRules = _AS_PUBLISHED


_TABLE = {
    System.SLED: SystemRules(SCHEDULING["fcfs"], keeps_kv=False),
    System.SLED_KV: SystemRules(SCHEDULING["fcfs"]),
    System.CENTRALIZED: SystemRules(SCHEDULING["fcfs"], speculates=False, in_engine=True),
    System.COLOCATED: SystemRules(SCHEDULING["fcfs"], drafts_on_server=True, in_engine=True),
    System.WISP: SystemRules(SCHEDULING["wisp"]),
    System.WISP_FAIR: SystemRules(SCHEDULING["wisp_fair"]),
    System.OUTRIDER: SystemRules(SCHEDULING["slo_aware"], steps=StepRules()),
}


def rules_of(scenario: Scenario) -> SystemRules:
    """The system's rules, with the scenario's scheduling and rules of steps where it names them."""
    rules = _TABLE[scenario.system]
    return replace(rules, scheduling=scenario.scheduling or rules.scheduling, steps=scenario.steps or rules.steps)


def fleet_rules(scheduling: Scheduling) -> SystemRules:
    """The product's, with this scheduling."""
    return replace(_TABLE[System.OUTRIDER], scheduling=scheduling)
