"""Who is judged, by whom, and for how long."""

from hypothesis import given
from hypothesis import strategies as st

from actors.fleet.drafter_strikes import ENOUGH_ACCUSERS, DrafterStandings, DrafterStrikes
from actors.messages import DrafterId
from outrider.engines.engine_beat import EngineBeat

MOST_S = 60.0


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_it_takes_distinct_generations_to_judge(generations: list[str]) -> None:
    strikes = DrafterStrikes()
    for generation in generations:
        strikes = strikes.doubted(generation)
    assert strikes.broken == (len(set(generations)) >= ENOUGH_ACCUSERS)
    assert not strikes.struck(0.0).broken, "once it was taken out they have to say so again"


@given(st.lists(st.floats(0.0, 250.0), min_size=1, max_size=40), st.floats(0.01, 30.0), st.floats(0.0, 1.0))
def test_pauses_double_with_each_strike_up_to_a_bound(gaps_s: list[float], first_s: float, chance: float) -> None:
    strikes, now_s, before_s = DrafterStrikes(), 0.0, 0.0
    for gap_s in gaps_s:
        now_s += gap_s
        strikes = strikes.struck(now_s)
        pause_s = strikes.pause_s(first_s, MOST_S, chance)
        assert pause_s <= 1.25 * MOST_S
        assert pause_s >= min(0.75 * MOST_S, max(0.75 * first_s, 1.99 * before_s))
        before_s = pause_s
    assert strikes.strikes == len(gaps_s)
    assert strikes.struck(now_s + 301.0).strikes == 1, "it was well for long"


def test_who_was_taken_out_together_does_not_come_back_together() -> None:
    strikes = DrafterStrikes().struck(0.0)
    assert strikes.pause_s(1.0, MOST_S, 0.0) == 0.75
    assert strikes.pause_s(1.0, MOST_S, 1.0) == 1.25


def test_a_beat_tells_for_how_long_one_thing_is_done() -> None:
    now_s = [10.0]
    beat = EngineBeat(lambda: now_s[0])
    assert beat.busy_s == 0.0
    with beat.working():
        now_s[0] = 13.0
        assert beat.busy_s == 3.0
    assert beat.busy_s == 0.0


def test_drafters_with_most_strikes_are_told_by_the_names_that_figures_have() -> None:
    standings = DrafterStandings()
    for index in range(20):
        for _ in range(1 + index):
            standings.struck(DrafterId("edge", index), None, 100.0)
    for _ in range(50):
        standings.struck(DrafterId("far", 4), "jetson-7", 100.0)
    standings.doubted(DrafterId("lab", 0), "one")
    devices = [(DrafterId("far", 8), "jetson-7"), (DrafterId("far", 9), "jetson-7"), (DrafterId("far", 2), "jetson-8")]
    worst = standings.worst(devices, 101.0)
    assert worst == {"drafter-far-9": 50} | {f"drafter-edge-{index}": 1 + index for index in range(13, 20)}
    assert standings.worst(devices, 500.0) == {}, "forgiven"


def test_devices_are_not_walked_where_none_of_them_has_a_strike() -> None:
    standings = DrafterStandings()
    standings.struck(DrafterId("lab", 0), None, 100.0)
    standings.struck(DrafterId("far", 9), "jetson-7", 0.0)
    devices = iter([(DrafterId("far", 9), "jetson-7")])
    assert standings.worst(devices, 301.0) == {"drafter-lab-0": 1}
    assert next(devices), "forgiven, and not looked for"
