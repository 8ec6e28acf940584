"""Up at once and in time, down slowly, never below what has been promised, within floor and ceiling."""

from dataclasses import replace
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from outrider.scaling.policy import ScalingInput, ScalingRules, ScalingState, decide

RULES = ScalingRules(1, 20, target_load=0.8, down_after_s=300.0, cold_start_s=60.0, trend_s=120.0)


class Driven:
    """Time goes on by 10 s at each look; replicas run so long after they were asked for."""

    def __init__(self, rules: ScalingRules, wanted: int = 1, *, start_s: float = 60.0) -> None:
        """Some are there."""
        self.rules, self.start_s = rules, start_s
        self.memory, self.now_s, self.wanted, self.running = ScalingState(), 0.0, wanted, wanted
        self._coming: list[float] = []

    def look(self, demand: float | None, active: float = 0.0) -> int:
        """What is decided now."""
        self.now_s += 10.0
        self.running += sum(at_s <= self.now_s for at_s in self._coming)
        self._coming = [at_s for at_s in self._coming if at_s > self.now_s]
        seen = ScalingInput(self.now_s, self.running, self.wanted, demand, active)
        decision, self.memory = decide(self.rules, self.memory, seen)
        missing = decision.count - self.running - len(self._coming)
        self._coming = self._coming[: len(self._coming) + min(missing, 0)] + [self.now_s + self.start_s] * missing
        self.running = min(self.running, decision.count)
        self.wanted = decision.count
        return decision.count


def test_a_steady_demand_has_as_many_as_its_target_needs() -> None:
    driven = Driven(RULES)
    assert [driven.look(4.0) for _ in range(5)] == [5] * 5


def test_what_grows_is_met_by_a_start_ahead() -> None:
    driven = Driven(RULES)
    for look in range(40):
        demand = 1.0 + 0.1 * look  # by 0.01 a second: 0.6 in a start
        driven.look(demand)
        if look > 20:
            assert driven.running * RULES.target_load >= demand - 0.1, "those run now that were asked for a start ago"


def test_chance_is_no_trend() -> None:
    driven = Driven(RULES, 5)
    assert {driven.look(3.9 + 0.1 * (-1) ** look) for look in range(100)} == {5}


def test_fewer_only_once_fewer_were_enough_for_long() -> None:
    driven = Driven(RULES)
    for _ in range(12):
        driven.look(8.0)
    assert driven.wanted == 10
    found = [driven.look(1.0) for _ in range(50)]
    fewer_at = next(look for look, count in enumerate(found) if count < 10)
    assert fewer_at >= 300 / 10
    assert found[-1] == 2


def test_a_peak_that_comes_back_within_the_hold_keeps_what_it_needs() -> None:
    driven = Driven(RULES)
    found = [driven.look(8.0 if look % 20 < 8 else 1.0) for look in range(200)]
    assert min(found[20:]) >= 10


def test_a_start_that_takes_long_is_remembered_and_looked_ahead_for() -> None:
    slow, fast = Driven(RULES, start_s=600.0), Driven(RULES, start_s=20.0)
    for driven in (slow, fast):
        for look in range(100):
            driven.look(1.0 + 0.05 * look)
    assert (slow.memory.start_s or 0.0) >= 600.0
    assert (fast.memory.start_s or 0.0) <= 60.0
    assert slow.wanted > fast.wanted


def test_what_replicas_say_of_their_start_is_believed_until_one_was_measured() -> None:
    growing = tuple((10.0 * look, 0.1 * look) for look in range(10))
    seen = ScalingInput(100.0, 1, 1, 1.0)
    short, _ = decide(RULES, ScalingState(samples=growing), seen)
    long, _ = decide(RULES, ScalingState(samples=growing), replace(seen, started_in_s=600.0))
    assert (short.ahead_s, long.ahead_s) == (60.0, 600.0)
    assert long.expected > short.expected + 4.0


def test_nothing_changes_while_nobody_says_anything() -> None:
    driven = Driven(RULES, 7)
    assert {driven.look(None) for _ in range(100)} == {7}


def test_who_begins_to_look_knows_no_reason_for_fewer() -> None:
    decision, _ = decide(RULES, ScalingState(), ScalingInput(0.0, 9, 9, 1.0))
    assert (decision.count, decision.needed) == (9, 2)


demands = st.lists(st.one_of(st.none(), st.floats(0.0, 30.0)), min_size=1, max_size=80)


@given(demands, st.integers(1, 5), st.integers(5, 25), st.integers(1, 30), st.floats(1.0, 900.0))
def test_always_within_bounds_and_never_below_what_is_active(
    asked: list[float | None], least: int, most: int, begins: int, start_s: float
) -> None:
    driven = Driven(replace(RULES, least=least, most=most), begins, start_s=start_s)
    for demand in asked:
        active = 0.7 * (demand or 0.0)
        before = driven.wanted
        count = driven.look(demand, active)
        assert least <= count <= most
        assert count >= min(most, ceil(active - 1e-6))
        assert count >= min(before, most) or count >= min(most, ceil((demand or 0.0) - 1e-6))


@given(demands, st.floats(20.0, 600.0))
def test_never_fewer_than_any_look_within_the_hold_needed(asked: list[float | None], down_after_s: float) -> None:
    driven, needs = Driven(replace(RULES, down_after_s=down_after_s, most=100)), list[tuple[float, int]]()
    for demand in asked:
        before = driven.wanted
        count = driven.look(demand)
        needs = [(at_s, needed) for at_s, needed in needs if driven.now_s - at_s <= down_after_s]
        if demand is not None:
            needs.append((driven.now_s, max(one[1] for one in driven.memory.needs[-1:])))
        if count < before:
            assert count >= max(needed for _, needed in needs)


@given(st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=400), st.floats(0.5, 50.0))
def test_memory_is_bounded(values: list[float], every_s: float) -> None:
    rules, memory = replace(RULES, most=2000), ScalingState()
    for look, value in enumerate(values):
        _, memory = decide(rules, memory, ScalingInput(every_s * look, 1, 1, value))
        assert len(memory.samples) <= 122
        assert len(memory.asked_at_s) <= 2000
        counts = [needed for _, needed in memory.needs]
        assert counts == sorted(counts, reverse=True)
