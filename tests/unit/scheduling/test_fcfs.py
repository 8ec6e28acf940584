"""First come, first served: nobody is overtaken."""

import numpy as np
from hypothesis import given

from outrider.scheduling.batch_builder import BatchBuilder
from outrider.scheduling.fcfs import Fcfs
from outrider.scheduling.policy import BatchLimits, PendingVerification
from outrider.scheduling.waiting_arrays import waiting_arrays
from tests.unit.scheduling.queues import COSTS, NOW_S, limits, queues


@given(queue=queues, limits=limits)
def test_who_waits_arrived_last(queue: list[PendingVerification], limits: BatchLimits) -> None:
    plan = Fcfs().plan(queue, NOW_S, limits, COSTS)
    arrivals = [p.arrived_at_s for p in (*plan.batch, *plan.waiting)]
    assert arrivals == sorted(arrivals)


@given(queue=queues, limits=limits)
def test_who_fits_without_looking_is_let_in_as_if_looked_at(
    queue: list[PendingVerification], limits: BatchLimits
) -> None:
    """In ample and scarce limits alike: the batch that grows block by block until one does not fit."""
    plan = Fcfs().plan(queue, NOW_S, limits, COSTS)
    grown = BatchBuilder(waiting_arrays(queue, limits), np.full(len(queue), np.inf), limits, COSTS)
    if queue:
        grown.force(0)
        grown.admit(np.arange(1, len(queue)), stop_at_first=True)
    assert plan == grown.plan()
