"""State of the link between coordinator and drafter."""

from dataclasses import dataclass
from enum import IntEnum


class Direction(IntEnum):
    UP = 0  # drafter to coordinator
    DOWN = 1  # coordinator to drafter


@dataclass(frozen=True, slots=True)
class Csi:
    """State of a link (WISV's c): rates in bits per second, packet error rates, round trip in seconds."""

    up_bps: float
    down_bps: float
    per_up: float
    per_down: float
    rtt_s: float

    def rate_bps(self, way: Direction) -> float:
        return self.up_bps if way is Direction.UP else self.down_bps
