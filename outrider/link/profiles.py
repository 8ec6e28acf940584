"""Define link conditions and, by name, the links that papers measured or assumed.

Sources of the figures:

- ``wifi_2m``, ``wifi_20m``: average uplink rates measured on WISV's testbed (section VII-B) at 2 m and 20 m from the
  router. The paper gives neither downlink, RTT, packet errors nor jitter. Assumed here: a downlink as fast as the
  uplink, 4 ms and 12 ms (the two sides of the 10 ms at which the testbed changes its protocol), 0.1 % and 1 % packet
  errors, 0.5 and 2 ms of jitter.
- ``good_500mbps_*``, ``poor_20mbps_*``: rates and RTTs of WISV's simulation (Fig. 4; Table I is at 50 ms). Assumed:
  both directions alike. Its packet error rates are not printed; its rates are "effective", so none are added.
- ``lte_20mbps``: assumed throughout, a usual LTE cell: 20 Mbps up, 50 down, 40 ms, 1 % packet errors, 5 ms of jitter.
- ``dssd_*``: round-trip delays of 0, 20 and 50 ms ("NTT") and caps of 10, 50 and 100 Mbps of DSSD's Tables 2 and 3,
  every combination. Assumed: the cap holds in both directions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType

from outrider.contracts.errors import ParameterError
from outrider.contracts.link import Direction


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """Conditions of a link that do not change; a field out of range is a ``ParameterError``."""

    up_bps: float  # bits per second on the air from the drafter, retransmissions included; likewise ``down_bps``
    down_bps: float
    rtt_s: float  # a round trip without the time its bits take (WISV's T_rtt)
    per_up: float = 0.0  # share of packets lost on the way up and sent again; likewise ``per_down``
    per_down: float = 0.0
    jitter_s: float = 0.0  # standard deviation of a message's one-way delay

    def __post_init__(self) -> None:
        for field in ("up_bps", "down_bps"):
            value = getattr(self, field)
            if not (isfinite(value) and value > 0.0):
                raise ParameterError(field, "a number above 0", value)
        for field in ("rtt_s", "jitter_s"):
            value = getattr(self, field)
            if not (isfinite(value) and value >= 0.0):
                raise ParameterError(field, "a number of at least 0", value)
        for field in ("per_up", "per_down"):
            value = getattr(self, field)
            if not 0.0 <= value < 1.0:
                raise ParameterError(field, "a number in [0, 1)", value)

    @property
    def steady(self) -> bool:
        """Whether a message's delay depends on its size alone: neither jitter nor loss."""
        return self.jitter_s == self.per_up == self.per_down == 0.0

    def rate_bps(self, direction: Direction) -> float:
        return self.up_bps if direction is Direction.UP else self.down_bps


def _alike(rate_bps: float, rtt_s: float) -> LinkProfile:
    return LinkProfile(up_bps=rate_bps, down_bps=rate_bps, rtt_s=rtt_s)


PROFILES: Mapping[str, LinkProfile] = MappingProxyType(
    {
        "wifi_2m": LinkProfile(498e6, 498e6, 0.004, per_up=0.001, per_down=0.001, jitter_s=0.0005),
        "wifi_20m": LinkProfile(172e6, 172e6, 0.012, per_up=0.01, per_down=0.01, jitter_s=0.002),
        "lte_20mbps": LinkProfile(20e6, 50e6, 0.040, per_up=0.01, per_down=0.01, jitter_s=0.005),
        "good_500mbps_5ms": _alike(500e6, 0.005),
        "good_500mbps_50ms": _alike(500e6, 0.050),
        "poor_20mbps_5ms": _alike(20e6, 0.005),
        "poor_20mbps_50ms": _alike(20e6, 0.050),
    }
    | {
        f"dssd_{ntt_ms}ms_{rate_mbps}mbps": _alike(rate_mbps * 1e6, ntt_ms / 1e3)
        for ntt_ms in (0, 20, 50)
        for rate_mbps in (10, 50, 100)
    }
)
