"""The newest deployment's settings hold, whatever clocks say and whoever is heard first after a fleet was restarted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fleet.settings_order import SettingsOrder
from actors.messages import FleetSettings


def settings(name: str) -> FleetSettings:
    return FleetSettings((), name, "tokens")


OLD, NEW = settings("old"), settings("new")


def test_who_is_heard_first_later_is_newer_and_its_word_is_needed_once() -> None:
    order = SettingsOrder()
    assert order.newest is None
    order.hear("a", 1, OLD, None, 0.0)
    order.hear("b", 1, NEW, None, 1.0)
    order.hear("a", 1, OLD, None, 2.0)
    order.hear("a", 1, None, None, 3.0)
    assert order.newest == NEW
    assert (order.number("a"), order.number("b"), order.number("nobody")) == (1, 2, None)


def test_going_back_to_earlier_settings_is_a_new_deployment() -> None:
    order = SettingsOrder()
    for number, each in enumerate((OLD, NEW, OLD)):
        order.hear(f"c{number}", 1, each, None, float(number))
    assert order.newest == OLD


def test_a_late_replica_of_an_old_configuration_holds_only_until_it_is_gone() -> None:
    order = SettingsOrder()
    order.hear("new", 1, NEW, None, 0.0)
    order.hear("late", 1, OLD, None, 1.0)
    assert order.newest == OLD
    for second in range(2, 61):
        order.hear("new", 1, None, None, float(second))
        assert order.newest == OLD, "it may be restarted"
    order.hear("new", 1, None, None, 62.0)
    assert order.newest == NEW


def test_settings_stay_when_the_last_coordinator_is_gone() -> None:
    order = SettingsOrder()
    order.hear("a", 1, OLD, None, 0.0)
    order.hear("b", 2, None, None, 1e6)  # tells its settings by its next heartbeat
    assert order.newest == OLD


@pytest.mark.parametrize("told", [True, False], ids=["told its number", "answer lost"])
@pytest.mark.parametrize("parted", ["old", "new"])
def test_a_coordinator_that_was_silent_for_long_has_its_place_again(parted: str, told: bool) -> None:
    order = SettingsOrder()
    order.hear("old", 1, OLD, None, 0.0)
    order.hear("new", 1, NEW, None, 1.0)
    number = order.number(parted) if told else None
    other, others = ("old", OLD) if parted == "new" else ("new", NEW)
    for second in range(2, 200):
        order.hear(other, 1, None, None, float(second))
        order.hear(f"come and gone {second}", 1, OLD, 0, float(second))  # has what is silent dropped
    assert order.newest == others
    order.hear(parted, 1, settings(parted), number, 200.0)
    assert order.newest == NEW
    order.hear("old", 1, None, None, 201.0)
    assert order.newest == NEW


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), min_size=1, max_size=40))
def test_of_those_that_are_heard_the_one_that_came_last_holds(events: list[tuple[int, float]]) -> None:
    """Whoever is silent for how long, and tells its settings again behind it as the fleet has forgotten it."""
    order, now_s = SettingsOrder(), 0.0
    came, heard_at_s, numbers = list[int](), dict[int, float](), dict[int, int | None]()
    for each, after_s in events:
        now_s += after_s
        if each not in came:
            came.append(each)
        heard_at_s[each] = now_s
        name = f"c{each}"
        order.hear(name, each, settings(name), numbers.get(each), now_s)
        numbers[each] = order.number(name)
        alive = [one for one in came if now_s - heard_at_s[one] <= 60.0]
        assert order.newest == settings(f"c{alive[-1]}")


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_restarted_fleets_keep_the_order_whoever_they_hear_first(known: list[bool], data: st.DataObject) -> None:
    """Coordinators come one by one, and a fleet is restarted with each; those that are ``known`` had its answer."""
    names = [f"c{number}" for number in range(len(known) + 1)]
    numbers: dict[str, int | None] = dict.fromkeys(names)
    came = list[str]()
    for name, stays in zip(names, [*known, True], strict=True):
        came.append(name)
        order = SettingsOrder()
        for each in data.draw(st.permutations(came)):
            order.hear(each, 1, settings(each), numbers[each], 0.0)
        unheard = [each for each in came if numbers[each] is None]
        if len(unheard) == 1:  # of several that no fleet has heard none is known to be the newer one
            assert order.newest == settings(name)
        if stays:
            numbers |= {each: order.number(each) for each in came}
            assert len({numbers[each] for each in came}) == len(came)


def test_thousands_that_come_and_go_leave_nothing_behind() -> None:
    order = SettingsOrder()
    for number in range(20_000):
        order.hear(f"c{number}", 1, settings("same"), None, float(number))
    assert len(order._entries) < 300  # noqa: SLF001 (memory is what is meant)
    assert len(order._silent_ranks) < 1200  # noqa: SLF001 (as above)
    assert len({id(entry.settings) for entry in order._entries.values()}) == 1  # noqa: SLF001 (as above)
