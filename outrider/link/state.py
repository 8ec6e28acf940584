"""The state of one drafter's link, as measured from its own traffic (WISV's CSI). No clock: callers pass times.

Everything is measured on one clock: an exchange takes ``elapsed_s`` from the first bit sent to the last received, of
which the peer reports that it spent ``peer_s`` (a duration, so its clock need not agree).

- The RTT is the median over the last small exchanges. A median follows a change after half its window and ignores
  the exchanges that waited in a busy process, as long as those are the minority; a minimum would call jitter progress.
- A rate comes from exchanges with one large message: least absolute deviations of (time left after the RTT and the
  small message) over (bits), which is a weighted median. Large messages count most, and a stray wait counts little.
- What can be measured is ``rate * (1 - PER)``: lost packets look like a slower link. So measured rates are net, the
  measured packet error rates are 0, and every formula that multiplies the two (WISV eq. 6) is right with them.

Where traffic does not say enough, ``probe_due`` asks for an exchange of fillers: a ping, or a message that takes a few
tens of milliseconds (the first ones are short and grow, as the rate is not known yet). Per direction that is at most
1/250 of the time, so probing stays under 1 % of the link.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from statistics import median

from outrider.contracts.link import Csi, Direction
from outrider.link.profiles import LinkProfile

SMALL_BITS = 2 * 1500 * 8  # both messages at most two packets: the exchange tells the RTT
LARGE_BITS = 16_000 * 8  # one message at least 16 kB: the exchange tells that direction's rate
PROBE_S, MAX_PROBE_S = 0.025, 0.1  # a probe of a rate is to take so long,
PROBE_PER_SPREAD = 10  # between these limits as many times the spread of round trips: much longer than jitter
MAX_PROBE_BITS = 2_000_000 * 8
PING_BITS = 64
MAX_AGE_S = 10.0  # older estimates are worth a probe
PROBE_SHARE = 1 / 250  # of the time, per direction
MIN_PAUSE_S = 1.0  # between two probes of one kind: time to be answered
PROBE_GROWTH = 8  # a probe is at most so much larger than the largest message measured
PRIOR_BPS = 20e6  # of a rate never measured: the slower of WISV's two settings, so that large messages have to earn it

_WINDOW = 25  # exchanges of one kind
_WINDOW_S = 60.0  # and none so much older than the newest
_FASTEST_BPS = 1e11
_ROUNDS = 5  # RTT and rates correct one another; an error shrinks by SMALL_BITS / LARGE_BITS or better each time


def profile_csi(profile: LinkProfile) -> Csi:
    """The state of a link whose conditions are known."""
    return Csi(profile.up_bps, profile.down_bps, profile.per_up, profile.per_down, profile.rtt_s)


@dataclass(frozen=True, slots=True)
class LinkSample:
    """One finished exchange: a message down, the peer's work, a message up.

    Attributes:
        at_s: when it ended.
        down_bits: payload, what crossed the link; likewise ``up_bits``.
        elapsed_s: from the first bit sent to the last received.
        peer_s: of these, spent by the peer between the two messages.
    """

    at_s: float
    down_bits: int
    up_bits: int
    elapsed_s: float
    peer_s: float

    def bits(self, way: Direction) -> int:
        """Size of the message that way."""
        return self.up_bits if way is Direction.UP else self.down_bits

    @property
    def link_s(self) -> float:
        """Seconds on the link; negative where the clocks' rounding exceeds them."""
        return self.elapsed_s - self.peer_s

    @property
    def large(self) -> Direction | None:
        """The direction whose rate it tells: the one with a large message, if the other's is small."""
        if min(self.up_bits, self.down_bits) > SMALL_BITS or max(self.up_bits, self.down_bits) < LARGE_BITS:
            return None
        return Direction.UP if self.up_bits > self.down_bits else Direction.DOWN

    @property
    def small(self) -> bool:
        """Whether it tells the RTT."""
        return max(self.up_bits, self.down_bits) <= SMALL_BITS


@dataclass(frozen=True, slots=True)
class LinkEstimate:
    """What is known of a link now.

    Attributes:
        csi: measured; a rate never measured is ``PRIOR_BPS``.
        rtt_age_s: seconds since the newest exchange that tells the RTT.
        up_age_s: likewise of the uplink's rate; None: never measured. ``down_age_s`` of the downlink's.
    """

    csi: Csi
    rtt_age_s: float
    up_age_s: float | None
    down_age_s: float | None


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """An exchange of fillers to make: both small is a ping."""

    down_bits: int
    up_bits: int


class LinkState:
    """The measured state of one drafter's link."""

    def __init__(self) -> None:
        self._small: deque[LinkSample] = deque(maxlen=_WINDOW)
        self._large: dict[Direction, deque[LinkSample]] = {way: deque(maxlen=_WINDOW) for way in Direction}
        self._next_ping_at_s = -inf
        self._asked = dict.fromkeys(Direction, (-inf, 0))  # probe of a rate: when, bits
        self._csi: Csi | None = None

    def observe(self, sample: LinkSample) -> None:
        """Take in an exchange; one that tells nothing (middling messages, or two large ones) is ignored."""
        way = sample.large
        if way is None and not sample.small:
            return
        window = self._small if way is None else self._large[way]
        window.append(sample)
        while window[0].at_s < sample.at_s - _WINDOW_S:
            window.popleft()
        self._csi = self._measure()

    def estimate(self, now_s: float) -> LinkEstimate | None:
        """What is known; None before the first exchange that tells the RTT."""
        rtt_age_s = _age_s(self._small, now_s)
        if self._csi is None or rtt_age_s is None:
            return None
        up_age_s, down_age_s = (_age_s(self._large[way], now_s) for way in Direction)
        return LinkEstimate(self._csi, rtt_age_s, up_age_s, down_age_s)

    def probe_due(self, now_s: float) -> ProbeRequest | None:
        """What to measure now, if anything; the caller makes the exchange and observes it.

        A request counts as under way: asking again gives what else is due, or None.
        """
        if _stale(self._small, now_s) and now_s >= self._next_ping_at_s:
            self._next_ping_at_s = now_s + MIN_PAUSE_S
            return ProbeRequest(down_bits=PING_BITS, up_bits=PING_BITS)
        if self._csi is None:
            return None  # a rate cannot be told without the RTT
        spread_s = median(abs(time_s - self._csi.rtt_s) for time_s in _round_trips_s(self._small, self._csi))
        probe_s = min(max(spread_s * PROBE_PER_SPREAD, PROBE_S), MAX_PROBE_S)
        for way in Direction:
            rate_bps = self._csi.rate_bps(way)
            measured_bits = [sample.bits(way) for sample in self._large[way]]
            wanted_bits = min(rate_bps * probe_s, MAX_PROBE_BITS, max(measured_bits, default=0) * PROBE_GROWTH)
            bits = max(int(wanted_bits), LARGE_BITS)
            # Messages much shorter than a probe drown in jitter: they refine an estimate and do not replace a probe.
            informative = [sample for sample in self._large[way] if sample.bits(way) >= bits / 4]
            asked_at_s, asked_bits = self._asked[way]
            pause_s = max(MIN_PAUSE_S, asked_bits / rate_bps / PROBE_SHARE)
            if _stale(informative, now_s) and now_s >= asked_at_s + pause_s:
                self._asked[way] = (now_s, bits)
                upwards = way is Direction.UP
                return ProbeRequest(PING_BITS, bits) if upwards else ProbeRequest(bits, PING_BITS)
        return None

    def _measure(self) -> Csi | None:
        if not self._small:
            return None
        csi = Csi(PRIOR_BPS, PRIOR_BPS, per_up=0.0, per_down=0.0, rtt_s=0.0)
        for _ in range(_ROUNDS):
            csi = replace(csi, rtt_s=max(median(_round_trips_s(self._small, csi)), 0.0))
            up_bps, down_bps = (_rate_bps(self._large[way], way, csi) for way in Direction)
            csi = replace(csi, up_bps=up_bps, down_bps=down_bps)
        return csi


def _round_trips_s(samples: Iterable[LinkSample], csi: Csi) -> list[float]:
    return [s.link_s - s.up_bits / csi.up_bps - s.down_bits / csi.down_bps for s in samples]


def _rate_bps(samples: Iterable[LinkSample], way: Direction, csi: Csi) -> float:
    """Least absolute deviations of time over bits, through the origin: the median of seconds per bit, by bits."""
    other = Direction.DOWN if way is Direction.UP else Direction.UP
    ordered = sorted(
        ((s.link_s - csi.rtt_s - s.bits(other) / csi.rate_bps(other)) / s.bits(way), s.bits(way)) for s in samples
    )
    if not ordered:
        return csi.rate_bps(way)
    below = list(accumulate(bits for _, bits in ordered))
    seconds_per_bit, _ = ordered[bisect_left(below, below[-1] / 2.0)]
    return 1.0 / max(seconds_per_bit, 1.0 / _FASTEST_BPS)


def _age_s(samples: Iterable[LinkSample], now_s: float) -> float | None:
    """Of the newest; None if there is none."""
    newest_at_s = max((sample.at_s for sample in samples), default=None)
    return None if newest_at_s is None else max(now_s - newest_at_s, 0.0)


def _stale(samples: Iterable[LinkSample], now_s: float) -> bool:
    age_s = _age_s(samples, now_s)
    return age_s is None or age_s > MAX_AGE_S
