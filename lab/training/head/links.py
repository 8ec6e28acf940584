"""Random links to train for, and the quality of each.

Quality is the time of a round with full-hidden upload of a block (WISV eq. 5 and 6), on a logarithmic scale between a
stated best and worst link. So it never falls when a rate rises or a loss or the round trip falls. A service measures
a link as a rate net of losses and reports no loss (``outrider.link.state``): half of the drawn links are given in that
form, the others as drawn.
"""

import math
from dataclasses import dataclass

import numpy as np

from outrider.contracts.link import Csi

_TOKEN_BITS, _HIDDEN_BITS, _OVERHEAD_BITS, _FEEDBACK_BITS = 16, 16, 512, 512 + 32
GOOD_BPS, POOR_BPS = 500e6, 20e6
SHORT_RTT_S, LONG_RTT_S = 0.005, 0.050


@dataclass(frozen=True, slots=True)
class LinkRanges:
    """Ranges of links; each number is drawn independently, uniformly on a logarithmic scale."""

    rate_bps: tuple[float, float] = (5e6, 1e9)  # each way
    packet_error_rate: tuple[float, float] = (1e-4, 0.1)
    rtt_s: tuple[float, float] = (1e-3, 0.1)

    def draw(self, rng: np.random.Generator) -> Csi:
        up, down = (_log_uniform(rng, self.rate_bps) for _ in range(2))
        per_up, per_down = (_log_uniform(rng, self.packet_error_rate) for _ in range(2))
        link = Csi(up, down, per_up, per_down, _log_uniform(rng, self.rtt_s))
        return as_measured(link) if rng.random() < 0.5 else link


def as_measured(link: Csi) -> Csi:
    """The link as a service measures it: losses appear as a lower rate."""
    rates = link.up_bps * (1.0 - link.per_up), link.down_bps * (1.0 - link.per_down)
    return Csi(*rates, 0.0, 0.0, link.rtt_s)


def symmetric_link(rate_bps: float, rtt_s: float, packet_error_rate: float = 0.0) -> Csi:
    """A link of evaluations: the same both ways."""
    return Csi(rate_bps, rate_bps, packet_error_rate, packet_error_rate, rtt_s)


_BEST, _WORST = symmetric_link(GOOD_BPS, SHORT_RTT_S), symmetric_link(POOR_BPS, LONG_RTT_S, 0.1)
EVALUATED = {
    f"{rate_bps / 1e6:.0f} Mbit/s, {rtt_s * 1e3:.0f} ms": symmetric_link(rate_bps, rtt_s)
    for rate_bps in (GOOD_BPS, POOR_BPS)
    for rtt_s in (SHORT_RTT_S, LONG_RTT_S)
}

CALIBRATED = {  # with both ends of the drawn links: a link beyond an end is treated as that end
    **EVALUATED,
    "1 Gbit/s, 1 ms": symmetric_link(1e9, 1e-3),
    "5 Mbit/s, 100 ms": symmetric_link(5e6, 0.1),
}


def round_s(link: Csi, window_tokens: int, hidden_width: int) -> float:
    """Seconds of a round with full-hidden upload on a link (WISV eq. 6), hidden states in fp16."""
    up = window_tokens * (_TOKEN_BITS + hidden_width * _HIDDEN_BITS) + _OVERHEAD_BITS
    rates = link.up_bps * (1.0 - link.per_up), link.down_bps * (1.0 - link.per_down)
    return up / rates[0] + _FEEDBACK_BITS / rates[1] + link.rtt_s


@dataclass(frozen=True, slots=True)
class LinkScale:
    """Best and worst link, between which quality is measured for a pair."""

    window_tokens: int
    hidden_width: int  # of the drafter
    best: Csi = _BEST
    worst: Csi = _WORST

    def quality(self, link: Csi) -> float:
        """0 (the worst link, or worse) to 1 (the best, or better)."""
        own, best, worst = (
            round_s(one, self.window_tokens, self.hidden_width) for one in (link, self.best, self.worst)
        )
        return min(1.0, max(0.0, math.log(worst / own) / math.log(worst / best)))


def _log_uniform(rng: np.random.Generator, ends: tuple[float, float]) -> float:
    return float(math.exp(rng.uniform(math.log(ends[0]), math.log(ends[1]))))
