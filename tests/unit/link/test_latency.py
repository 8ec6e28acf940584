"""The papers' formulas against their own tables and against the emulator (seeded)."""

import numpy as np
import pytest

from outrider.contracts.link import Csi, Direction
from outrider.link.emulator import LinkEmulator
from outrider.link.latency import (
    down_s,
    dsd_comm_s,
    dssd_comm_s,
    exchange_s,
    round_s,
    selective_hidden_s,
    tslt_comm_s,
    up_s,
)
from outrider.link.profiles import PROFILES, LinkProfile
from outrider.link.state import profile_csi

CSI = Csi(up_bps=20e6, down_bps=40e6, per_up=0.2, per_down=0.5, rtt_s=0.05)
DSSD_TABLE_1_MS = {  # at 8 ms for a row and 20 ms of NTT
    2: [26.00, 25.12, 24.08, 22.88, 21.52, 20.16],
    4: [27.50, 26.96, 26.08, 24.72, 22.75, 20.32],
    6: [27.88, 27.63, 27.06, 25.90, 23.75, 20.47],
    8: [27.97, 27.87, 27.54, 26.66, 24.56, 20.62],
}


@pytest.mark.parametrize("window", DSSD_TABLE_1_MS)
def test_dssd_table_1(window: int) -> None:
    csi = profile_csi(LinkProfile(100e6, 100e6, 0.020))
    times_s = [
        dssd_comm_s(csi, token_acceptance, window, 800_000) for token_acceptance in (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
    ]
    # The table is rounded to hundredths of a millisecond.
    assert np.array(times_s) * 1e3 == pytest.approx(DSSD_TABLE_1_MS[window], abs=0.005 + 1e-9)


def test_an_exchange_takes_its_bits_over_effective_rates_and_a_round_trip() -> None:
    assert exchange_s(CSI, 2_000_000, 1_600_000) == pytest.approx(0.1 + 0.1 + 0.05)
    assert up_s(CSI, 1_600_000) == down_s(CSI, 2_000_000) == pytest.approx(0.1)


def test_selective_upload_costs_a_round_trip_more_where_something_is_asked_for() -> None:
    draft, request, hidden, feedback = 1_000, 50, 32_768, 40
    both_s = exchange_s(CSI, feedback, draft) + exchange_s(CSI, request, hidden)
    assert selective_hidden_s(CSI, draft, request, hidden, feedback) == both_s
    assert selective_hidden_s(CSI, draft, 0, 0, feedback) == exchange_s(CSI, feedback, draft)


def test_tslt_table_1_size() -> None:
    """Half a megabit for a whole row without indices; pairs of 32 tokens take 992 bits (TSLT eq. 3)."""
    csi = profile_csi(LinkProfile(1e6, 1e6, 0.05))
    assert tslt_comm_s(csi, 1, 32, 32_000, 16) == pytest.approx(32 * 31 / 1e6)
    assert tslt_comm_s(csi, 7, 32, 32_768, 16) == pytest.approx(7 * 32 * 31 / 1e6)
    assert dsd_comm_s(csi, 4, 512_000) == pytest.approx(4 * 0.512 + 0.05)


def test_dssd_undoes_the_uplink_of_dsd() -> None:
    csi, row_bits = profile_csi(PROFILES["dssd_20ms_50mbps"]), 50_272 * 16
    assert dssd_comm_s(csi, 0.0, 8, row_bits) == pytest.approx(dsd_comm_s(csi, 1, row_bits))
    assert dssd_comm_s(csi, 1.0, 8, row_bits) == csi.rtt_s


def test_a_round_drafts_sends_and_verifies() -> None:
    assert round_s(4, 0.01, 0.03, 0.02) == pytest.approx(0.09)


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
