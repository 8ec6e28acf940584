"""What makes one system differ from another: a row of a table; the event loop is the same for all.

``centralized`` and ``colocated`` plan inside the engine: one batch after another, nothing to send, no staging. The
others send batches from a coordinator, the next one while one runs (as the product's batcher does).
"""

from dataclasses import dataclass

from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.ledger import DeadlineRule
from outrider.scheduling.policy import SchedulingPolicy
from outrider.scheduling.slo_aware import SloAware
from outrider.scheduling.wisp import Wisp
from outrider.simulation.scenario import Scenario, System


@dataclass(frozen=True, slots=True)
class SystemRules:
    """How one system works.

    Attributes:
        policy: plans its batches.
        deadlines: what its blocks' deadlines come from.
        keeps_kv: KV stays resident between verifications; if not, each computes the whole prefix, in one pass.
        speculates: anything is drafted.
        drafts_on_server: in the batch's own time, without a link.
        in_engine: batches are planned where they run.
    """

    policy: SchedulingPolicy
    deadlines: DeadlineRule = DeadlineRule.LEDGER
    keeps_kv: bool = True
    speculates: bool = True
    drafts_on_server: bool = False
    in_engine: bool = False


_TABLE = {
    System.SLED: SystemRules(Fcfs(), keeps_kv=False),
    System.SLED_KV: SystemRules(Fcfs()),
    System.CENTRALIZED: SystemRules(Fcfs(), speculates=False, in_engine=True),
    System.COLOCATED: SystemRules(Fcfs(), drafts_on_server=True, in_engine=True),
    System.WISP: SystemRules(Wisp(), DeadlineRule.ROUND),
    System.OUTRIDER: SystemRules(SloAware()),
}


def rules_of(scenario: Scenario) -> SystemRules:
    """The system's rules with what the scenario puts in their place."""
    rules = _TABLE[scenario.system]
    return SystemRules(
        policy=rules.policy if scenario.policy is None else scenario.policy,
        deadlines=rules.deadlines if scenario.deadlines is None else scenario.deadlines,
        keeps_kv=rules.keeps_kv if scenario.keeps_kv is None else scenario.keeps_kv,
        speculates=rules.speculates,
        drafts_on_server=rules.drafts_on_server,
        in_engine=rules.in_engine,
    )
