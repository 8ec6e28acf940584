"""What is drawn: the same from a seed, of what is possible, and so that the faults meet somebody."""

from collections import Counter

import pytest

from tests.chaos.agents.asks import agents_of
from tests.chaos.schedules import (
    FAULTS,
    LASTING,
    FaultKind,
    Menu,
    Reader,
    Schedule,
    StreamKind,
    Victim,
    expected_tokens,
    schedule_of,
)

MENU = Menu(FAULTS, agents=tuple(agents_of("hermes")))
MANY = [schedule_of(seed, MENU) for seed in range(400)]


def test_a_seed_is_a_schedule() -> None:
    assert [schedule_of(seed, MENU) for seed in range(20)] == MANY[:20]
    assert len({schedule.to_json() for schedule in MANY}) == len(MANY)


def test_what_is_written_down_is_the_same_again() -> None:
    assert [Schedule.from_json(schedule.to_json()) for schedule in MANY] == MANY


def test_everything_is_tried_sooner_or_later() -> None:
    faults = Counter((fault.kind, fault.victim) for schedule in MANY for fault in schedule.faults)
    assert set(faults) == set(FAULTS)
    streams = [stream for schedule in MANY for stream in schedule.streams]
    assert {stream.kind for stream in streams} == set(StreamKind)
    assert {stream.agent for stream in streams} == {None, *MENU.agents}
    assert {stream.reader for stream in streams} == set(Reader)
    assert {stream.n for stream in streams} == {1, 2, 3}
    assert any(stream.stop_at for stream in streams)
    assert any(stream.slo_classes for stream in streams)


def test_several_faults_strike_at_once_and_again() -> None:
    bursts = [Counter(fault.after_tokens for fault in schedule.faults) for schedule in MANY]
    assert {max(burst.values()) for burst in bursts} >= {1, 2, 3}
    assert {len(burst) for burst in bursts} == {1, 2}


def test_a_fault_s_turn_comes_while_streams_are_under_way() -> None:
    for schedule in MANY:
        assert max(fault.after_tokens for fault in schedule.faults) <= expected_tokens(schedule.streams) / 2
        assert sum(stream.lasts for stream in schedule.streams) >= 1
        for fault in schedule.faults:
            assert (fault.lasts_s > 0.0) == (fault.kind in LASTING)


def test_only_what_is_possible_is_drawn() -> None:
    menu = Menu(((FaultKind.KILL, Victim.DRAFTER),), semantic=False, poison=False, prompts=2, most_tokens=10)
    for seed in range(50):
        schedule = schedule_of(seed, menu)
        assert {(fault.kind, fault.victim) for fault in schedule.faults} == set(menu.targets)
        for stream in schedule.streams:
            assert stream.kind in (StreamKind.GREEDY, StreamKind.SEEDED)
            assert stream.prompt < 2
            assert stream.tokens <= 10


@pytest.mark.parametrize("seed", [0, 7])
def test_a_schedule_is_told_by_a_line_for_each_thing(seed: int) -> None:
    schedule = MANY[seed]
    assert len(schedule.lines()) == 1 + len(schedule.streams) + len(schedule.faults)
