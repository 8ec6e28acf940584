"""The smallest schedule that fails is found, whatever it hangs on."""

import pytest

from tests.chaos.schedules import FAULTS, Menu, Schedule, schedule_of
from tests.chaos.shrinking import shrunk

WHOLE = next(
    schedule
    for schedule in (schedule_of(seed, Menu(FAULTS)) for seed in range(100))
    if len(schedule.faults) >= 4 and len(schedule.streams) >= 6
)


@pytest.mark.parametrize("fault", range(4))
@pytest.mark.parametrize("stream", [0, 3, 5])
def test_one_fault_and_the_stream_it_harms_are_left(fault: int, stream: int) -> None:
    needed = WHOLE.faults[fault], WHOLE.streams[stream]
    tried: list[Schedule] = []

    def fails(schedule: Schedule) -> bool:
        tried.append(schedule)
        return needed[0] in schedule.faults and needed[1] in schedule.streams

    smallest = shrunk(WHOLE, fails, 1000)
    assert smallest.faults.count(needed[0]) == WHOLE.faults.count(needed[0]) or len(smallest.faults) == 1
    assert smallest.streams == (needed[1],)
    assert len(tried) < 40


def test_two_faults_together_stay_together() -> None:
    needed = {WHOLE.faults[0], WHOLE.faults[-1]}
    smallest = shrunk(WHOLE, lambda schedule: needed <= set(schedule.faults), 1000)
    assert set(smallest.faults) == needed
    assert len(smallest.streams) == 1, "any stream shows it"


def test_it_gives_up_in_time_with_the_best_so_far() -> None:
    tries = 0

    def fails(schedule: Schedule) -> bool:
        nonlocal tries
        tries += 1
        return WHOLE.faults[0] in schedule.faults

    found = shrunk(WHOLE, fails, 3)
    assert tries == 3
    assert WHOLE.faults[0] in found.faults


def test_what_fails_by_chance_loses_nothing_that_was_needed() -> None:
    assert shrunk(WHOLE, lambda _: False, 1000) == WHOLE
