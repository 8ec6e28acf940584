"""The measured state of a link against the emulator, which knows the truth. Seeded: they pass or fail for good."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.link import Csi, Direction
from outrider.link.emulator import LinkEmulator
from outrider.link.profiles import PROFILES, LinkProfile
from outrider.link.state import (
    LARGE_BITS,
    MAX_AGE_S,
    PING_BITS,
    PRIOR_BPS,
    LinkSample,
    LinkState,
    ProbeRequest,
    profile_csi,
)
from outrider.link.trace import LinkSource, LinkTrace

PEER_S = 0.02
PING = ProbeRequest(PING_BITS, PING_BITS)
Exchange = tuple[float, int, int]  # when, bits down, bits up


class Link:
    """A drafter at the end of an emulated link, and what is measured of it."""

    def __init__(self, source: LinkSource, seed: int = 0) -> None:
        self.emulator, self.state = LinkEmulator(source, seed), LinkState()
        self.probed: list[tuple[float, ProbeRequest]] = []

    def exchange(self, now_s: float, down_bits: int, up_bits: int, waited_s: float = 0.0) -> float:
        """Send and answer; ``waited_s`` in a busy process that nobody accounts for. Returns when it ended."""
        arrived_at_s = self.emulator.deliver(Direction.DOWN, down_bits, now_s)
        ended_at_s = self.emulator.deliver(Direction.UP, up_bits, arrived_at_s + PEER_S) + waited_s
        self.state.observe(LinkSample(ended_at_s, down_bits, up_bits, ended_at_s - now_s, PEER_S))
        return ended_at_s

    def run(self, exchanges: Iterable[Exchange]) -> float:
        """Make exchanges and the probes that are due before each. Returns the time after the last."""
        now_s = 0.0
        for at_s, down_bits, up_bits in exchanges:
            now_s = max(now_s, at_s)
            while (probe := self.state.probe_due(now_s)) is not None:
                self.probed.append((now_s, probe))
                now_s = self.exchange(now_s, probe.down_bits, probe.up_bits)
            now_s = self.exchange(now_s, down_bits, up_bits)
        return now_s

    def csi(self, now_s: float) -> Csi:
        estimate = self.state.estimate(now_s)
        assert estimate is not None
        return estimate.csi


def rounds(
    until_s: float, every_s: float, down_bits: int = 400, up_bits: int = 800, from_s: float = 0.0
) -> Iterable[Exchange]:
    return [(float(at_s), down_bits, up_bits) for at_s in np.arange(from_s, until_s, every_s)]


def net(profile: LinkProfile) -> tuple[float, float, float]:
    """What can be measured: rates after losses, and the round trip."""
    return profile.up_bps * (1 - profile.per_up), profile.down_bps * (1 - profile.per_down), profile.rtt_s


def measured(csi: Csi) -> tuple[float, float, float]:
    return csi.up_bps, csi.down_bps, csi.rtt_s


@pytest.mark.parametrize("name", ["poor_20mbps_50ms", "good_500mbps_5ms", "dssd_50ms_10mbps", "dssd_0ms_100mbps"])
def test_a_steady_link_is_measured_exactly(name: str) -> None:
    link = Link(PROFILES[name])
    ended_at_s = link.run(rounds(10, every_s=0.5))
    assert measured(link.csi(ended_at_s)) == pytest.approx(net(PROFILES[name]), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", ["wifi_2m", "wifi_20m", "lte_20mbps"])
def test_jitter_and_losses_average_out(name: str) -> None:
    errors = []
    for seed in range(20):
        link = Link(PROFILES[name], seed)
        csi = link.csi(link.run(rounds(60, every_s=0.25)))
        errors.append(np.array(measured(csi)) / net(PROFILES[name]) - 1)
    # The worst jitter, both ways together, is 7 ms of an RTT of 40; a minute has room for three probes of 70 ms.
    assert np.abs(np.mean(errors, axis=0)).max() < 0.04
    assert np.sqrt(np.mean(np.square(errors), axis=0)).max() < 0.12


def test_traffic_that_says_enough_makes_probes_of_the_rate_needless() -> None:
    large_bits, errors = 2_000_000, []
    traffic = [*rounds(30, 0.25), *rounds(30, 0.5, up_bits=large_bits), *rounds(30, 0.5, down_bits=large_bits)]
    for seed in range(5):
        link = Link(PROFILES["wifi_20m"], seed)
        ended_at_s = link.run(sorted(traffic))
        assert [probe for at_s, probe in link.probed if at_s > 1.0] == []
        errors.append(np.array(measured(link.csi(ended_at_s))) / net(PROFILES["wifi_20m"]) - 1)
    assert np.sqrt(np.mean(np.square(errors), axis=0)).max() < 0.1


def test_waits_in_a_busy_process_are_not_taken_for_the_link() -> None:
    link = Link(PROFILES["poor_20mbps_50ms"])
    random = np.random.default_rng(0)
    now_s = 0.0
    for _ in range(200):
        waited_s = float(random.exponential(0.2)) if random.random() < 0.25 else 0.0
        bits = [(400, 800), (400, 800), (400, 1_000_000), (1_000_000, 800)][random.integers(4)]
        now_s = link.exchange(now_s, *bits, waited_s)
    assert measured(link.csi(now_s)) == pytest.approx(net(PROFILES["poor_20mbps_50ms"]), rel=1e-3)


def test_a_change_is_followed() -> None:
    good, poor = LinkProfile(100e6, 200e6, 0.005, jitter_s=0.0005), LinkProfile(10e6, 5e6, 0.060, jitter_s=0.002)
    link = Link(LinkTrace((0.0, 60.0), (good, poor)))
    traffic = list(rounds(119, every_s=0.25))
    assert measured(link.csi(link.run(traffic[: 59 * 4]))) == pytest.approx(net(good), rel=0.1)
    # The round trip after half a window of rounds, the rates after some probes.
    assert link.csi(link.run(traffic[59 * 4 : 64 * 4])).rtt_s == pytest.approx(poor.rtt_s, rel=0.1)
    assert measured(link.csi(link.run(traffic[64 * 4 :]))) == pytest.approx(net(poor), rel=0.1)


def test_nothing_is_known_at_first_and_a_ping_is_due() -> None:
    state = LinkState()
    assert state.estimate(0.0) is None
    assert state.probe_due(0.0) == PING
    assert state.probe_due(0.1) is None  # under way
    assert state.probe_due(5.0) == PING  # lost, it seems


def test_a_rate_never_measured_is_the_prior_and_said_to_be_one() -> None:
    state = LinkState()
    state.observe(LinkSample(at_s=1.0, down_bits=64, up_bits=64, elapsed_s=0.03, peer_s=0.01))
    estimate = state.estimate(3.0)
    assert estimate is not None
    assert (estimate.csi.up_bps, estimate.csi.down_bps) == (PRIOR_BPS, PRIOR_BPS)
    assert estimate.csi.rtt_s == pytest.approx(0.02, rel=1e-3)
    assert (estimate.rtt_age_s, estimate.up_age_s, estimate.down_age_s) == (2.0, None, None)
    assert state.probe_due(3.0) == ProbeRequest(PING_BITS, LARGE_BITS)
    assert state.probe_due(3.0) == ProbeRequest(LARGE_BITS, PING_BITS)
    assert state.probe_due(3.0) is None


def test_ages_are_each_estimate_s_own() -> None:
    link = Link(PROFILES["good_500mbps_5ms"])
    link.exchange(0.0, 400, 800)
    link.exchange(1.0, 400, 1_000_000)
    up_at_s = link.exchange(2.0, 400, 1_000_000)
    down_at_s = link.exchange(4.0, 1_000_000, 800)
    rtt_at_s = link.exchange(8.0, 400, 800)
    estimate = link.state.estimate(9.0)
    assert estimate is not None
    assert (estimate.rtt_age_s, estimate.up_age_s, estimate.down_age_s) == (9 - rtt_at_s, 9 - up_at_s, 9 - down_at_s)


@pytest.mark.parametrize(
    ("down_bits", "up_bits"), [(64, LARGE_BITS - 1), (LARGE_BITS, LARGE_BITS), (40_000, LARGE_BITS)]
)
def test_what_tells_neither_round_trip_nor_rate_is_ignored(down_bits: int, up_bits: int) -> None:
    state = LinkState()
    state.observe(LinkSample(0.0, 64, 64, 0.03, 0.01))
    before = state.estimate(1.0)
    state.observe(LinkSample(1.0, down_bits, up_bits, 5.0, 0.0))
    assert state.estimate(1.0) == before


def test_a_probe_is_asked_for_again_when_an_estimate_is_old() -> None:
    link = Link(PROFILES["poor_20mbps_50ms"])
    ended_at_s = link.run(rounds(20, every_s=0.5))
    last_at_s = max(at_s for at_s, probe in link.probed)
    assert link.state.probe_due(ended_at_s) is None
    assert link.state.probe_due(max(last_at_s, ended_at_s) + 2 * MAX_AGE_S) == PING
    up, down, nothing = (link.state.probe_due(ended_at_s + 2 * MAX_AGE_S) for _ in range(3))
    assert up is not None
    assert down is not None
    assert (up.down_bits, down.up_bits, nothing) == (PING_BITS, PING_BITS, None)
    assert [up.up_bits, down.down_bits] == pytest.approx([500_000, 500_000], rel=1e-2)


@pytest.mark.parametrize("name", [*PROFILES, "slow"])
def test_probing_takes_less_than_a_hundredth_of_the_link(name: str) -> None:
    profile = PROFILES.get(name, LinkProfile(200e3, 1e6, 0.3, per_up=0.2, jitter_s=0.05))
    link = Link(profile)
    ended_at_s = link.run(rounds(300, every_s=1.0))
    probes_s = sum(
        probe.up_bits / profile.up_bps + probe.down_bits / profile.down_bps for at_s, probe in link.probed if at_s > 0.0
    )
    assert probes_s < 0.01 * ended_at_s
    kinds: list[Callable[[ProbeRequest], int]] = [lambda probe: probe.up_bits, lambda probe: probe.down_bits]
    for kind in kinds:
        assert sum(kind(probe) >= LARGE_BITS for _, probe in link.probed) > 1


@given(
    samples=st.lists(
        st.builds(
            LinkSample,
            at_s=st.floats(0, 1e3),
            down_bits=st.integers(0, 10**8),
            up_bits=st.integers(0, 10**8),
            elapsed_s=st.floats(0, 100),
            peer_s=st.floats(0, 100),
        )
    )
)
def test_whatever_is_observed_the_estimate_is_a_link(samples: list[LinkSample]) -> None:
    state = LinkState()
    for sample in samples:
        state.observe(sample)
        state.probe_due(sample.at_s)
    estimate = state.estimate(2e3)
    if estimate is not None:
        csi = estimate.csi
        assert LinkProfile(csi.up_bps, csi.down_bps, csi.rtt_s, csi.per_up, csi.per_down).up_bps <= 1e11
        assert min(age_s for age_s in (estimate.rtt_age_s, estimate.up_age_s, estimate.down_age_s) if age_s) >= 1e3


def test_known_conditions_are_a_state_too() -> None:
    assert profile_csi(LinkProfile(1.0, 2.0, 3.0, 0.1, 0.2)) == Csi(1.0, 2.0, 0.1, 0.2, 3.0)
