"""Which mode is kept, when it is left, and what finding out costs: in virtual time, with each mode's speed given."""

from itertools import pairwise

import pytest

from outrider.selection.modes import DRAFT, LOOKUP, LOOKUP_DRAFT, MODES, NONE, SpeculationMode, within
from outrider.selection.tuning import trial_budget
from outrider.selection.tuning.speculation_tuner import SpeculationTuner
from tests.unit.selection.simulated_verifier import Speed, World, constant, crossing

MINUTE_S = 60.0


def best_of(world: World, loads: int) -> float:
    """Tokens per second of all, under the better mode."""
    return loads * max(world.speed(NONE, loads, 0.0), world.speed(DRAFT, loads, 0.0))


def changed_at_s(world: World, since_s: float, mode: SpeculationMode) -> float:
    """When a mode was next put in use."""
    return next(at_s for at_s, used in world.modes if at_s >= since_s and used is mode)


@pytest.mark.parametrize("load", [1, 2, 8, 16])
@pytest.mark.parametrize("ratio", [0.4, 0.8, 1.0, 1.2, 1.5])
def test_a_cold_start_loses_little_against_the_better_mode(ratio: float, load: int) -> None:
    """Hardly anything against none from the first second on; what is won is won within the first minutes."""
    world = World(constant(ratio))
    world.load(load)
    world.until(5 * MINUTE_S)
    none = load * world.speed(NONE, load, 0.0)
    assert world.modes[0] == (0.0, NONE), "which never costs"
    assert world.rate(0.0, 20.0) > (0.95 if load == 1 else 0.97) * none, "a first try by the only one ends there"
    assert world.rate(0.0, MINUTE_S) > 0.97 * none
    assert world.rate(0.0, 5 * MINUTE_S) > 0.965 * best_of(world, load)
    if ratio != 1.0:
        assert world.tuner.report(world.now_s).kept == ("draft" if ratio > 1.0 else "none")


@pytest.mark.parametrize("load", [4, 8, 16])
def test_all_follow_what_wins_once_a_try_is_saved_for_and_leave_what_loses(load: int) -> None:
    for ratio, follow in ((1.5, True), (0.5, False)):
        world = World(constant(ratio))
        world.load(load)
        world.until(25.0)
        assert (world.tuner.mode is DRAFT) is follow
        assert dict(world.tuner.report(10.0).probes)["draft"] >= 1


def test_tries_of_what_loses_cost_little_and_come_ever_more_seldom() -> None:
    """At a load of one, where a try costs everybody."""
    world = World(constant(0.5))
    world.load(1)
    world.until(10 * MINUTE_S)
    tries = [at_s for at_s, mode in world.modes if mode is DRAFT]
    report = world.tuner.report(world.now_s)
    assert world.rate(0.0, 600.0) > 0.98 * best_of(world, 1)
    assert max(after - before for before, after in pairwise(tries)) > 2 * MINUTE_S
    assert dict(report.probes)["draft"] == len(tries)
    assert 0.0 < report.probes_lost_s < 0.02 * report.active_s
    assert report.active_s == pytest.approx(600.0, abs=1.0)


def test_what_has_begun_to_pay_is_found_again() -> None:
    world = World(lambda mode, load, now_s: constant(0.5 if now_s < 300.0 else 2.0)(mode, load, now_s))
    world.load(4)
    world.until(300.0)
    assert world.tuner.report(300.0).kept == "none"
    world.until(640.0)
    assert world.tuner.report(640.0).kept == "draft"


def test_what_has_ceased_to_pay_is_left_at_once() -> None:
    world = World(lambda mode, load, now_s: constant(1.5 if now_s < 100.0 else 0.5)(mode, load, now_s))
    world.load(4)
    world.until(99.0)
    assert world.tuner.report(99.0).kept == "draft"
    world.until(106.0)
    assert world.tuner.report(106.0).kept == "none"


def test_a_load_that_goes_back_and_forth_around_the_crossover_changes_nothing() -> None:
    world = World(crossing(4.5))
    for second in range(300):
        world.load(4 + second % 2)
        world.until(second + 1.0)
    assert world.tuner.report(300.0).changes <= 2
    assert len(world.modes) <= 20, "tries included"


def test_a_step_in_load_is_followed_within_two_seconds_where_both_modes_are_known() -> None:
    world = World(crossing(8.0))
    for load, until_s in ((4, 40.0), (16, 80.0), (4, 120.0), (16, 160.0)):
        world.load(load)
        world.until(until_s)
    world.load(4)
    world.until(200.0)
    assert changed_at_s(world, 120.0, NONE) < 122.0
    assert changed_at_s(world, 160.0, DRAFT) < 162.0


def test_a_step_to_a_load_that_is_new_is_followed_by_a_try() -> None:
    world = World(crossing(8.0))
    world.load(4)
    world.until(40.0)
    assert world.tuner.mode is DRAFT
    world.load(16)
    world.until(46.0)
    assert world.tuner.report(46.0).kept == "none"


@pytest.mark.parametrize(("ratio", "load"), [(0.4, 8), (0.9, 8), (0.8, 1), (1.4, 8)])
def test_what_modes_bring_at_the_present_load_is_told(ratio: float, load: int) -> None:
    world = World(constant(ratio))
    world.load(load)
    assert world.tuner.report(0.0).at_load == (), "before anything is measured"
    world.until(MINUTE_S)
    report = world.tuner.report(world.now_s)
    told = {mode: (tokens_per_s, loss) for mode, tokens_per_s, loss in report.at_load}
    assert set(told) == {"none", "draft"}
    kept, other = ("draft", "none") if ratio > 1.0 else ("none", "draft")
    assert report.kept == kept
    assert told[kept][0] == pytest.approx(world.speed(world.tuner.mode, load, 0.0), rel=0.15)
    assert told[kept][1] == 0.0
    brings = told[other][0] / told[kept][0]
    assert 1.0 - told[other][1] == pytest.approx(brings, abs=0.15)
    assert brings == pytest.approx(min(ratio, 1.0 / ratio), abs=0.25)


@pytest.mark.parametrize("factor", [20.0, 4.0])
def test_one_slow_device_among_many_does_not_keep_the_others_from_drafting(factor: float) -> None:
    world = World(constant(1.3), slow={"g1": factor})
    world.load(8)
    world.until(MINUTE_S)
    assert world.share(DRAFT, 10.0) > 0.9


def test_one_device_that_is_too_good_does_not_make_the_others_draft() -> None:
    world = World(constant(0.75), slow={"g1": 0.02})
    world.load(8)
    world.until(MINUTE_S)
    assert world.share(NONE, 10.0) > 0.9


def test_promises_are_a_condition() -> None:
    """A mode that breaks them loses to one that keeps them, though it is faster."""
    for late, kept, ratio in (({NONE: 0.0, DRAFT: 0.4}, "none", 1.3), ({NONE: 0.4, DRAFT: 0.0}, "draft", 0.8)):
        world = World(constant(ratio), late=late)
        world.load(4)
        world.until(MINUTE_S)
        assert world.tuner.report(world.now_s).kept == kept


def steps(tuner: SpeculationTuner, names: list[str], since_s: float, until_s: float, step_s: float = 0.02) -> None:
    """One token of each in every step."""
    for step in range(1, round((until_s - since_s) / step_s) + 1):
        for name in names:
            tuner.round(name, 1, step_s, since_s + step * step_s)


def alone_until(tuner: SpeculationTuner, name: str, mode: SpeculationMode, now_s: float) -> float:
    """One token of the only one in every step, until a mode is in use; when that is."""
    while tuner.mode is not mode:
        now_s += 0.02
        tuner.round(name, 1, 0.02, now_s)
    return now_s


def rewards(tuner: SpeculationTuner, now_s: float) -> list[float]:
    """Load and speed of all that is known of no draft, cell by cell."""
    known = dict(tuner.report(now_s).rewards)["none"]
    return [number for reward in known for number in (reward.load, reward.tokens_per_s)]


def test_neither_prefills_nor_idle_time_count() -> None:
    tuner = SpeculationTuner((NONE,), 0.0)
    for number in range(4):  # a second each, and three between them in which nobody is active
        name, begins_s = f"g{number}", 4.0 * number
        tuner.began(name, begins_s)
        steps(tuner, [name], begins_s, begins_s + 1.0)
        tuner.ended(name, begins_s + 1.0)
    assert rewards(tuner, 16.0) == pytest.approx([1.0, 50.0])
    assert tuner.report(16.0).active_s == pytest.approx(4.0)


def test_one_that_fixes_its_drafts_is_load_and_no_evidence() -> None:
    tuner = SpeculationTuner((NONE,), 0.0)
    tuner.began("fixed", 0.0, counts=False)
    steps(tuner, ["fixed"], 0.0, 3.0)
    assert not rewards(tuner, 3.0)
    tuner.began("free", 3.0)
    steps(tuner, ["free"], 3.0, 8.0, step_s=0.05)
    assert rewards(tuner, 8.0)[-2:] == pytest.approx([2.0, 20.0])


def test_those_that_fix_their_drafts_pay_for_no_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_budget, "_ALLOWANCE_S", 0.0)
    first_try_at_s = []
    for fixed_s in (0.0, 300.0):
        tuner = SpeculationTuner((NONE, DRAFT), 0.0)
        tuner.began("fixed", 0.0, counts=False)
        steps(tuner, ["fixed"], 0.0, fixed_s)
        tuner.ended("fixed", fixed_s)
        assert tuner.report(fixed_s).active_s == 0.0
        tuner.began("free", fixed_s)
        first_try_at_s.append(alone_until(tuner, "free", DRAFT, fixed_s) - fixed_s)
    assert first_try_at_s[0] == pytest.approx(first_try_at_s[1], abs=2.0)
    assert min(first_try_at_s) > 5.0


def test_a_try_is_charged_with_what_drafters_take_before_it_is_measured() -> None:
    """They compute prefixes, on the verifier's processors maybe; then drafting is as fast."""
    tuner = SpeculationTuner((NONE, DRAFT), 0.0)
    tuner.began("g", 0.0)
    now_s = alone_until(tuner, "g", DRAFT, 0.0)
    for _ in range(5):
        now_s += 0.4
        tuner.round("g", 1, 0.4, now_s)
    tuner.ready("g")
    now_s = alone_until(tuner, "g", NONE, now_s)
    assert 1.6 < tuner.report(now_s).probes_lost_s < 2.0


def test_what_comes_right_behind_a_change_counts_for_neither_mode() -> None:
    """Rounds begun before drafters are ready, however many, tell nothing of drafting."""
    tuner = SpeculationTuner((NONE, DRAFT), 0.0)
    tuner.began("g", 0.0)
    now_s = alone_until(tuner, "g", DRAFT, 0.0)
    settled_s = now_s + 1.5
    while now_s < settled_s:
        now_s += 0.02
        tuner.round("g", 1, 0.02, now_s)
    assert tuner.mode is DRAFT
    assert dict(tuner.report(now_s).rewards)["draft"] == ()
    tuner.ready("g")
    for _ in range(2):  # begun before that
        now_s += 0.3
        tuner.round("g", 1000, 1.0, now_s)
    while not dict(tuner.report(now_s).rewards)["draft"]:
        now_s += 0.2
        tuner.round("g", 2, 0.2, now_s)
    (known,) = dict(tuner.report(now_s).rewards)["draft"]
    assert known.tokens_per_s == pytest.approx(10.0)


def test_a_try_that_idle_time_interrupts_is_over() -> None:
    world = World(constant(0.5))
    world.load(1)
    while world.tuner.mode is NONE:
        world.until(world.now_s + 0.1)
    world.load(0)
    world.until(world.now_s + MINUTE_S)
    world.load(1)
    assert world.tuner.mode is NONE


def given(speeds: dict[SpeculationMode, float]) -> Speed:
    """Each mode brings so many times what none does, at any load."""

    def speed(mode: SpeculationMode, load: int, now_s: float) -> float:  # noqa: ARG001
        return 60.0 / (1.0 + 0.2 * load) * speeds[mode]

    return speed


FOUR = (NONE, LOOKUP, DRAFT, LOOKUP_DRAFT)


@pytest.mark.parametrize("load", [1, 4, 16])
@pytest.mark.parametrize(
    "speeds",
    [(1.0, 1.5, 0.6, 0.8), (1.0, 0.9, 0.5, 0.45), (1.0, 1.2, 1.2, 1.5), (1.0, 0.9, 1.4, 1.2)],
    ids=["lookup", "none", "both", "draft"],
)
def test_the_best_of_four_modes_is_kept_and_finding_it_costs_little(speeds: tuple[float, ...], load: int) -> None:
    world = World(given(dict(zip(FOUR, speeds, strict=True))), arms_to_choose=FOUR)
    world.load(load)
    world.until(10 * MINUTE_S)
    none = load * world.speed(NONE, load, 0.0)
    assert world.rate(0.0, MINUTE_S) > 0.96 * none
    assert world.rate(5 * MINUTE_S, 10 * MINUTE_S) > 0.96 * max(speeds) * none
    best = max(zip(speeds, FOUR, strict=True), key=lambda one: one[0])[1]
    assert world.tuner.report(world.now_s).kept == best.name


def test_looking_up_needs_no_device_and_is_tried_at_once() -> None:
    world = World(given({NONE: 1.0, LOOKUP: 1.4}), arms_to_choose=(NONE, LOOKUP))
    world.load(1)
    world.until(6.0)
    assert world.tuner.report(6.0).kept == "lookup"


def test_what_is_left_of_an_mode_is_an_mode() -> None:
    assert {within(mode, drafts=True, uses_lookup=True) for mode in MODES.values()} == set(MODES.values())
    assert [within(mode, drafts=False, uses_lookup=True) for mode in FOUR] == [NONE, LOOKUP, NONE, LOOKUP]
    assert [within(mode, drafts=True, uses_lookup=False) for mode in FOUR] == [NONE, NONE, DRAFT, DRAFT]
