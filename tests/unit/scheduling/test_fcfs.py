"""First come, first served: nobody is overtaken."""

from hypothesis import given

from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, PendingVerification
from tests.unit.scheduling.queues import COSTS, NOW_S, limits, queues


@given(queue=queues, limits=limits)
def test_who_waits_arrived_last(queue: list[PendingVerification], limits: BatchLimits) -> None:
    plan = Fcfs().plan(queue, NOW_S, limits, COSTS)
    arrivals = [p.arrived_at_s for p in (*plan.batch, *plan.waiting)]
    assert arrivals == sorted(arrivals)
