"""First come, first served: nobody is overtaken."""

import pytest
from hypothesis import given

from outrider.contracts.cost import VerifyCost
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, PendingVerification, SchedulingPolicy
from outrider.scheduling.slo_aware import SloAware
from outrider.scheduling.wisp import Doomed, Wisp
from tests.unit.scheduling.queues import COSTS, INFINITY, NOW_S, ROOMY, block, limits, pass_costs, queues


@given(queue=queues, limits=limits)
def test_who_waits_arrived_last(queue: list[PendingVerification], limits: BatchLimits) -> None:
    plan = Fcfs().plan(queue, NOW_S, limits, COSTS)
    arrivals = [p.arrived_at_s for p in (*plan.batch, *plan.waiting)]
    assert arrivals == sorted(arrivals)


@given(queue=queues, limits=limits)
def test_the_first_that_does_not_fit_ends_the_batch(queue: list[PendingVerification], limits: BatchLimits) -> None:
    plan = Fcfs().plan(queue, NOW_S, limits, COSTS)
    if not plan.waiting:
        return
    longer = [*plan.batch, plan.waiting[0]]
    memory_blocks = sum(p.memory_blocks for p in longer)
    assert (
        len(longer) > limits.max_blocks
        or sum(cost.new_tokens for cost in pass_costs(longer, limits)) > limits.max_new_tokens
        or memory_blocks > (INFINITY if limits.max_memory_blocks is None else limits.max_memory_blocks)
    )


@pytest.mark.parametrize(
    "policy", [SloAware(), Wisp(doomed=Doomed.LAST, marginal=True)], ids=["slo_aware", "wisp_fair"]
)
def test_cold_blocks_share_the_chunk_of_a_pass(policy: SchedulingPolicy) -> None:
    """The second has nothing left of it, so it waits; as much of the first as fits is computed."""
    cold = [
        block(name, waited_s=waited_s, cost=VerifyCost(600, 0), prefill_tokens=594)
        for name, waited_s in (("a", 0.2), ("b", 0.1))
    ]
    plan = policy.plan([*cold, block("c")], NOW_S, ROOMY, COSTS)
    assert cold[0] in plan.batch
    assert cold[1] in plan.waiting
