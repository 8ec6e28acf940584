from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.mix import BrokenPromise, Mix, PromiseRule, breaks, confirm, search, served
from outrider.contracts.slo import BEST_EFFORT, SloClass
from tests.unit.lab.simulation.test_advice import DEVICES, SERVER

SLOW = replace(DEVICES, name="slow", count=2, slo=SloClass("slow", 2.0))
MIX = Mix((replace(DEVICES, count=6), SLOW, replace(DEVICES, name="free", count=1, slo=BEST_EFFORT)), SERVER)


def up_to(limit: int) -> Callable[[int], BrokenPromise | None]:
    """Promises that are kept up to a number of devices."""
    return lambda devices: None if devices <= limit else BrokenPromise(devices, "fast", 0.5, 0.0, 1.0)


@given(devices=st.integers(1, 500))
def test_a_mix_keeps_its_proportions(devices: int) -> None:
    found = {group.name: group.count for group in MIX.of(devices)}
    assert sum(found.values()) == devices
    assert all(count > 0 for count in found.values())
    for group in MIX.groups:
        assert abs(found.get(group.name, 0) - devices * group.count / MIX.devices) < 1.0


@given(
    quick=st.integers(0, 400),
    chance=st.lists(st.floats(0.7, 1.15), min_size=1, max_size=4),
    guess=st.integers(1, 1000),
    most=st.integers(1, 300),
)
def test_a_capacity_is_what_every_seed_keeps(quick: int, chance: list[float], guess: int, most: int) -> None:
    limits = [int(quick * times) for times in chance]
    searched = search(up_to(quick), guess, most)
    assert searched.devices <= min(quick, most)
    found = served(searched, [confirm(up_to(limit), searched.devices) for limit in limits])
    least = min(quick, *limits)
    assert found.devices <= min(least, most)
    assert found.most <= min(quick, most, max(limits))
    if found.searched_all:
        assert found.devices >= least - 0.11 * quick - 2
        assert found.broken_by is not None
        assert found.broken_by.devices > found.devices
    else:
        assert found.devices == most <= least, "the end of the search is not a capacity"


def test_a_first_look_takes_half_the_time_of_what_confirms_it() -> None:
    assert MIX.run(4, 0, quick=True).measured_s == pytest.approx(0.5 * MIX.run(4, 0).measured_s)


def test_what_is_promised_to_nobody_in_particular_breaks_nothing() -> None:
    found = MIX.run(MIX.devices, 0)
    assert breaks(found, PromiseRule(0.05), MIX.devices) is None
    late = breaks(found, PromiseRule(0.05, first_token_s=1e-6), MIX.devices)
    assert late is not None
    assert (late.unkept_class, late.devices) == ("", MIX.devices)
    assert late.first_token_p99_s == found.first_token_times.p99_s


def test_a_crowd_is_late_and_the_class_is_told() -> None:
    crowd = Mix((replace(DEVICES, count=500, slo=SloClass("fast", 12.0)),), SERVER)
    late = breaks(crowd.run(500, 0), PromiseRule(0.05), 500)
    assert late is not None
    assert late.unkept_class == "fast" or late.first_token_p99_s > 5.0


def test_without_drafts_nothing_is_drafted() -> None:
    alone = MIX.without_drafts().run(4, 0)
    assert sum(device.drafted_tokens for device in alone.devices) == 0
    assert sum(device.drafted_tokens for device in MIX.run(4, 0).devices) > 0


@pytest.mark.parametrize("devices", [1, 50, 400])
def test_a_run_lasts_for_a_response_and_more(devices: int) -> None:
    found = MIX.run(devices, 0)
    assert found.measured_s >= 1.5 * MIX.response_s
    assert found.measured_s <= 6.0 * MIX.response_s
