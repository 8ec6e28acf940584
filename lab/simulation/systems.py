"""Table of the compared systems; the event loop is the same for all.

``centralized`` plans inside the engine, so plans and results take no time to send. The others plan at a coordinator
while the verifier steps by itself, as in the product.
"""

from dataclasses import dataclass, replace

from lab.simulation.scenario import Scenario, System
from outrider.scheduling.registry import SCHEDULING, Scheduling
from outrider.scheduling.steps import StepRules

_AS_PUBLISHED = StepRules(trims=False, holds=False)


@dataclass(frozen=True, slots=True)
class SystemRules:
    """Properties of one system.

    Attributes:
        keeps_kv: whether KV stays resident between verifications; if not, each recomputes the whole prefix in one pass.
    """

    scheduling: Scheduling  # of batches
    keeps_kv: bool = True
    speculative: bool = True  # whether devices draft
    in_engine: bool = False  # whether batches are planned in the engine
    steps: StepRules = _AS_PUBLISHED


_TABLE = {
    System.SLED: SystemRules(SCHEDULING["fcfs"], keeps_kv=False),
    System.SLED_KV: SystemRules(SCHEDULING["fcfs"]),
    System.CENTRALIZED: SystemRules(SCHEDULING["fcfs"], speculative=False, in_engine=True),
    System.WISP: SystemRules(SCHEDULING["wisp"]),
    System.WISP_ALONE: SystemRules(SCHEDULING["wisp_alone"]),
    System.WISP_FAIR: SystemRules(SCHEDULING["wisp_fair"]),
    System.OUTRIDER: SystemRules(SCHEDULING["slo_aware"], steps=StepRules()),
}


def rules_of(scenario: Scenario) -> SystemRules:
    """Return the system's rules, with the scenario's own scheduling and step rules if it has them."""
    rules = _TABLE[scenario.system]
    return replace(rules, scheduling=scenario.scheduling or rules.scheduling, steps=scenario.steps or rules.steps)


def fleet_rules(scheduling: Scheduling) -> SystemRules:
    """Return the product's rules with another scheduling."""
    return replace(_TABLE[System.OUTRIDER], scheduling=scheduling)
