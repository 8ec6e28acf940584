"""What an exchange takes, by its formula and as emulated (seeded)."""

import numpy as np
import pytest

from outrider.contracts.link import Csi, Direction
from outrider.link.emulator import LinkEmulator
from outrider.link.latency import down_s, exchange_s, up_s
from outrider.link.profiles import PROFILES
from outrider.link.state import profile_csi

CSI = Csi(up_bps=20e6, down_bps=40e6, per_up=0.2, per_down=0.5, rtt_s=0.05)


def test_an_exchange_takes_its_bits_over_effective_rates_and_a_round_trip() -> None:
    assert exchange_s(CSI, 2_000_000, 1_600_000) == pytest.approx(0.1 + 0.1 + 0.05)
    assert up_s(CSI, 1_600_000) == down_s(CSI, 2_000_000) == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["wifi_2m", "wifi_20m", "lte_20mbps", "poor_20mbps_50ms", "dssd_0ms_10mbps"])
def test_the_emulated_mean_is_the_predicted_exchange(name: str) -> None:
    profile, down_bits, up_bits = PROFILES[name], 5_000, 800_000
    times_s = []
    for seed in range(400):
        emulator = LinkEmulator(profile, seed)
        arrived_at_s = emulator.deliver(Direction.DOWN, down_bits, 0.0)
        times_s.append(emulator.deliver(Direction.UP, up_bits, arrived_at_s))
    predicted_s = exchange_s(profile_csi(profile), down_bits, up_bits)
    standard_error_s = float(np.std(times_s)) / len(times_s) ** 0.5
    assert abs(np.mean(times_s) - predicted_s) <= 4 * standard_error_s + 1e-9
