"""What the emulator does to messages. Statistical tests are seeded: they pass or fail for good."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.link import Direction
from outrider.link.emulator import PACKET_BITS, LinkEmulator
from outrider.link.profiles import LinkProfile
from outrider.link.trace import LinkTrace

UP, DOWN = Direction.UP, Direction.DOWN
CLEAN = LinkProfile(up_bps=1e6, down_bps=4e6, rtt_s=0.1)
ROUGH = replace(CLEAN, per_up=0.3, per_down=0.1, jitter_s=0.02)

MESSAGES = st.lists(
    st.tuples(st.sampled_from(Direction), st.integers(0, 100_000), st.floats(0.0, 0.2)), min_size=1, max_size=20
)


def deliveries(emulator: LinkEmulator, messages: list[tuple[Direction, int, float]]) -> list[tuple[Direction, float]]:
    """Send messages, each so long after the one before, and say when they arrive."""
    now_s, arrivals = 0.0, []
    for way, bits, pause_s in messages:
        now_s += pause_s
        arrivals.append((way, emulator.deliver(way, bits, now_s)))
    return arrivals


def test_bits_take_their_time_and_travel_half_a_round_trip() -> None:
    emulator = LinkEmulator(CLEAN, seed=0)
    assert emulator.deliver(UP, 500_000, now_s=10.0) == pytest.approx(10.55)
    assert emulator.deliver(DOWN, 400_000, now_s=10.0) == pytest.approx(10.15)
    assert emulator.deliver(DOWN, 0, now_s=11.0) == pytest.approx(11.05)


def test_a_message_waits_for_those_before_it_in_its_direction() -> None:
    emulator = LinkEmulator(CLEAN, seed=0)
    emulator.deliver(UP, 500_000, now_s=0.0)
    assert emulator.deliver(DOWN, 4_000, now_s=0.1) == pytest.approx(0.151)
    assert emulator.deliver(UP, 100_000, now_s=0.1) == pytest.approx(0.65)
    assert emulator.deliver(UP, 100_000, now_s=5.0) == pytest.approx(5.15)


@given(messages=MESSAGES, seed=st.integers(0, 2**64 - 1))
def test_nothing_arrives_before_it_could_nor_overtakes(messages: list[tuple[Direction, int, float]], seed: int) -> None:
    rough, clean = deliveries(LinkEmulator(ROUGH, seed), messages), deliveries(LinkEmulator(CLEAN, seed), messages)
    for way in Direction:
        arrivals = [at_s for direction, at_s in rough if direction is way]
        assert arrivals == sorted(arrivals)
    # Jitter takes off half a round trip at most; losses only add.
    assert all(
        at_s >= at_best_s - CLEAN.rtt_s / 2 - 1e-9 for (_, at_s), (_, at_best_s) in zip(rough, clean, strict=True)
    )


@given(messages=MESSAGES, seed=st.integers(0, 2**64 - 1))
def test_chance_depends_on_seed_direction_and_number_alone(
    messages: list[tuple[Direction, int, float]], seed: int
) -> None:
    together = deliveries(LinkEmulator(ROUGH, seed), messages)
    for way in Direction:
        silent = LinkEmulator(ROUGH, seed)
        now_s, alone = 0.0, []
        for direction, bits, pause_s in messages:
            now_s += pause_s
            if direction is way:
                alone.append((way, silent.deliver(way, bits, now_s)))
        assert alone == [arrival for arrival in together if arrival[0] is way]


def test_seeds_and_directions_differ() -> None:
    alike = replace(ROUGH, down_bps=ROUGH.up_bps, per_down=ROUGH.per_up)
    times = {LinkEmulator(alike, seed).deliver(way, 100_000, 0.0) for seed in range(10) for way in Direction}
    assert len(times) == 20


def test_lost_packets_are_sent_again_until_they_arrive() -> None:
    profile = replace(CLEAN, per_up=0.5, rtt_s=0.0)
    emulator = LinkEmulator(profile, seed=1)
    bits = 10 * PACKET_BITS + 120
    sent_bits = [emulator.deliver(UP, bits, now_s) * 1e6 - now_s * 1e6 for now_s in map(float, range(0, 3000, 3))]
    extra = np.rint(np.array(sent_bits) - bits).astype(int)
    assert (extra >= 0).all()
    # Whole packets, and the last short one, each any number of times.
    assert set(extra % 120) == {0}
    assert np.mean(sent_bits) == pytest.approx(bits / 0.5, rel=0.03)  # standard error 1 %


def test_jitter_is_even_and_bounded() -> None:
    emulator = LinkEmulator(replace(CLEAN, jitter_s=0.02), seed=2)
    delays_s = np.array([emulator.deliver(UP, 0, now_s) - now_s for now_s in map(float, range(2000))])
    assert delays_s.mean() == pytest.approx(0.05, abs=0.0018)  # 4 standard errors
    assert delays_s.std() == pytest.approx(0.02, rel=0.1)
    assert delays_s.min() >= -1e-9
    assert delays_s.max() <= 0.1 + 1e-9


def test_a_link_without_a_round_trip_has_no_jitter() -> None:
    emulator = LinkEmulator(replace(CLEAN, rtt_s=0.0, jitter_s=0.02), seed=2)
    assert [emulator.deliver(UP, 0, now_s) for now_s in (1.0, 2.0, 3.0)] == [1.0, 2.0, 3.0]


def test_a_message_goes_on_through_a_change_of_the_rate() -> None:
    outage = LinkTrace((0.0, 1.0, 3.0), (CLEAN, replace(CLEAN, up_bps=1.0), CLEAN))
    # Half a megabit before the outage, the rest after it.
    assert LinkEmulator(outage, 0).deliver(UP, 1_000_000, now_s=0.5) == pytest.approx(3.55, abs=1e-5)
    # Repeated after five seconds; several rounds of it are needed.
    assert LinkEmulator(outage, 0).deliver(UP, 6_000_000, now_s=0.0) == pytest.approx(10.05, abs=1e-4)


def test_a_queued_message_meets_the_conditions_of_when_it_leaves() -> None:
    change = LinkTrace((0.0, 1.0), (CLEAN, replace(CLEAN, rtt_s=1.0)))
    emulator = LinkEmulator(change, seed=0)
    emulator.deliver(UP, 1_000_000, now_s=0.0)
    assert emulator.deliver(UP, 0, now_s=0.5) == pytest.approx(1.5)
