"""On hills that are written down, and once on real runs where a closed form picks another window."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lab.simulation.capacity import Capacity
from lab.simulation.results import DeviceResults, SimulationResults
from lab.simulation.run import simulate
from lab.simulation.stop_map import PromiseSearch, Runs, Windows
from tests.unit.lab.simulation.scenarios import group, scenario

EMPTY = simulate(scenario(group()))


def ended(devices: int, goodput: float = 1.0) -> SimulationResults:
    """A run of so many devices, which committed so much in one second."""
    account = replace(EMPTY.devices[0], committed_tokens=round(1000 * goodput))
    return replace(EMPTY, devices=(account, *[quiet()] * (devices - 1)), measured_s=1.0)


def quiet() -> DeviceResults:
    return replace(EMPTY.devices[0], committed_tokens=0)


def windows(served: Mapping[int, int], made: list[tuple[int, int]] | None = None, resolution: float = 0.0) -> Windows:
    """Each window keeps the promise to so many devices, and brings as many tokens."""

    def runs_of(window: int) -> Runs:
        def simulated(devices: int) -> SimulationResults:
            if made is not None:
                made.append((window, devices))
            return ended(devices, served[window])

        def violation_rate(found: SimulationResults) -> float:
            return float(len(found.devices) > served[window])

        return Runs(window, PromiseSearch(violation_rate, 0.1, 64, resolution), simulated)

    return Windows(max(served), runs_of)


HILL = {0: 60, 1: 10, 2: 20, 3: 31, 4: 33, 5: 30, 6: 12, 7: 0}


@pytest.mark.parametrize("start", range(1, 8))
def test_from_everywhere_to_the_top_of_those_that_draft(start: int) -> None:
    found = windows(HILL)
    best = found.serving_most(start, guess=25)
    assert (best.window, best.capacity(1).devices) == (4, 33)
    assert found.bringing_most(start, devices=7).window == 4
    assert found[0].capacity(1).devices == 60


def test_a_dent_is_stepped_over() -> None:
    assert windows(HILL | {3: 15}).serving_most(2, guess=20).window == 4


def test_no_run_is_made_twice_and_neighbours_take_few() -> None:
    made: list[tuple[int, int]] = []
    windows(HILL, made).serving_most(4, guess=33)
    assert len(made) == len(set(made))
    assert [sum(window == other for window, _ in made) for other in (2, 3, 5, 6)] == [1, 1, 1, 1]


def test_what_cannot_be_told_apart_is_no_better() -> None:
    assert windows(HILL, resolution=0.1).serving_most(3, guess=31).window == 3


def test_who_serves_nobody_is_found_out_with_one_device() -> None:
    made: list[tuple[int, int]] = []
    found = windows(HILL, made)[7].capacity(40)
    assert found == Capacity(0, ((1, 1.0),))
    assert made == [(7, 40), (7, 1)]


def test_nobody_is_served_beyond_what_may_be_tried() -> None:
    found = windows({0: 100, 1: 100, 2: 100}).serving_most(1, guess=1000)
    assert (found.window, found.capacity(1).devices, found.capacity(1).bounded) == (1, 64, True)
