import pytest

from outrider.contracts.errors import ParameterError
from outrider.contracts.link import Direction
from outrider.link.profiles import PROFILES, LinkProfile


def test_published_figures() -> None:
    assert PROFILES["wifi_2m"].up_bps == 498e6
    assert PROFILES["wifi_20m"].up_bps == 172e6
    assert PROFILES["poor_20mbps_50ms"] == LinkProfile(20e6, 20e6, 0.05)
    assert PROFILES["dssd_20ms_50mbps"] == LinkProfile(50e6, 50e6, 0.02)
    assert len([name for name in PROFILES if name.startswith("dssd_")]) == 9


def test_directions_have_their_own_figures() -> None:
    profile = LinkProfile(1.0, 2.0, 0.0)
    assert [profile.rate_bps(way) for way in (Direction.UP, Direction.DOWN)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"up_bps": 0.0}, "up_bps needs a number above 0, found 0.0"),
        ({"down_bps": float("inf")}, "down_bps needs a number above 0, found inf"),
        ({"rtt_s": -1.0}, "rtt_s needs a number of at least 0, found -1.0"),
        ({"jitter_s": float("nan")}, "jitter_s needs a number of at least 0, found nan"),
        ({"per_up": 1.0}, r"per_up needs a number in \[0, 1\), found 1.0"),
        ({"per_down": -0.1}, r"per_down needs a number in \[0, 1\), found -0.1"),
    ],
)
def test_what_no_link_can_be_is_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LinkProfile(**({"up_bps": 1.0, "down_bps": 1.0, "rtt_s": 0.0} | fields))
