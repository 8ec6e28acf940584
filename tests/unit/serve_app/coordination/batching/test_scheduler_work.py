"""How often the scheduler is woken, and for how long."""

import pytest

from serve_app.coordination.batching.scheduler_work import SchedulerWork, counted
from tests.unit.serve_app.coordination.hand_driven import block, make, submit, verified
from tests.unit.virtual_clock import on_loop


class Scheduler:
    """A wake-up takes as long as it is told, by its clock."""

    def __init__(self) -> None:
        self.work, self.now_s = SchedulerWork(), 0.0

    def _clock(self) -> float:
        return self.now_s

    @counted
    def woken(self, took_s: float) -> None:
        """Take so long; no time at all is an error."""
        self.now_s += took_s
        if not took_s:
            raise ValueError("no time")


def test_wakeups_add_up_with_those_that_fail() -> None:
    scheduler = Scheduler()
    scheduler.woken(0.25)
    scheduler.now_s += 10.0
    scheduler.woken(0.5)
    with pytest.raises(ValueError, match="no time"):
        scheduler.woken(0.0)
    assert scheduler.work == SchedulerWork(3, 0.75)


@on_loop
async def test_a_batcher_is_woken_by_blocks_that_come_and_by_each_step() -> None:
    batcher, verifier = make()
    tasks = [submit(batcher, block(name)) for name in "ab"]
    await verifier.calls.get()
    assert batcher.work.wakeups == 1, "for both blocks"
    verifier.brings(verified(block("a")))
    await tasks[0]
    assert batcher.work.wakeups == 2
    verifier.brings(verified(block("b")))
    await tasks[1]
    assert batcher.work.wakeups == 3
