from pathlib import Path

import pytest

from lab.bench.protocols.command import own_links, with_every_protocol
from outrider.config.reading import build_config
from outrider.contracts.errors import ConfigError
from outrider.link.profiles import PROFILES, LinkProfile
from outrider.protocols.registry import PROTOCOLS

MOBILE = {"up_mbps": 10, "down_mbps": 50, "rtt_ms": 25, "jitter_ms": 5}


def test_links_of_groups_are_those_that_are_measured_each_once() -> None:
    links = [MOBILE, {"profile": "wifi_20m"}, MOBILE, None]
    groups = [{"name": f"group-{number}", "link": link} for number, link in enumerate(links)]
    expected = (LinkProfile(10e6, 50e6, 0.025, jitter_s=0.005), PROFILES["wifi_20m"])
    assert own_links(build_config({"drafters": groups}, "test")) == expected
    assert own_links(build_config({}, "test")) == ()


def test_a_trace_is_refused_as_bits_have_no_single_price_on_it(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,up_bps,down_bps,rtt_s,per_up,per_down\n0,2e7,5e7,0.04,0,0\n1,2e6,5e6,0.09,0,0\n")
    with pytest.raises(ConfigError, match="does not change"):
        own_links(build_config({"drafters": [{"name": "lab", "link": {"trace": str(trace)}}]}, "test"))


def test_requests_may_name_every_protocol_that_is_measured() -> None:
    only = build_config({"speculation": {"protocols": ["tslt", "wisv_full"]}}, "test")
    allowed = with_every_protocol(only).speculation.protocols
    assert set(PROTOCOLS) - set(allowed) == {"wisv_selective"}
    assert allowed[:2] == ("tslt", "wisv_full")
