from pathlib import Path

import pytest

from outrider.assembly.links import link_source
from outrider.config.drafters import LinkConfig
from outrider.contracts.errors import ConfigError
from outrider.link.profiles import PROFILES, LinkProfile
from outrider.link.trace import LinkTrace


def test_no_link_is_emulated_unless_one_is_described() -> None:
    assert link_source(None) is None


def test_a_profile_is_found_by_name() -> None:
    assert link_source(LinkConfig(profile="wifi_20m")) == PROFILES["wifi_20m"]


def test_figures_are_converted_to_base_units() -> None:
    assert link_source(LinkConfig(up_mbps=20.0, down_mbps=40.0, rtt_ms=50.0)) == LinkProfile(20e6, 40e6, 0.05)
    rough = LinkConfig(up_mbps=1.0, down_mbps=2.0, rtt_ms=3.0, per_up=0.1, per_down=0.2, jitter_ms=1.0)
    assert link_source(rough) == LinkProfile(1e6, 2e6, 0.003, 0.1, 0.2, 0.001)


def test_a_trace_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time_s,up_bps,down_bps,rtt_s,per_up,per_down\n0,1,2,3,0.1,0.2\n", encoding="utf-8")
    assert link_source(LinkConfig(trace=str(path))) == LinkTrace((0.0,), (LinkProfile(1, 2, 3, 0.1, 0.2),))
    with pytest.raises(ConfigError, match="link trace needs a readable CSV file"):
        link_source(LinkConfig(trace=str(tmp_path / "other.csv")))
