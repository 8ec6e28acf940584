"""Measure the state of one drafter's link from its own traffic (WISV's CSI). No clock: callers pass times.

Everything is measured on one clock: an exchange takes ``elapsed_s`` from the first bit sent to the last received, of
which the peer reports that it spent ``peer_s`` (a duration, so its clock need not agree).

- The RTT is the median over the last small exchanges. A median follows a change after half its window and ignores
  exchanges that waited in a busy process, as long as those are the minority. A minimum would mistake jitter for a
  shorter round trip.
- A rate comes from exchanges with one large message: least absolute deviations of (time left after the RTT and the
  small message) over (bits), which is a weighted median. Large messages count most, and a stray wait counts little.
- Only ``rate * (1 - PER)`` can be measured: lost packets look like a slower link. So measured rates are net, measured
  packet error rates are 0, and every formula that multiplies the two (WISV eq. 6) holds with them.

Where traffic does not suffice, ``probe_due`` requests an exchange of filler bits: a ping, or a message that takes some
tens of milliseconds (the first ones are short and grow, as the rate is not known yet). That is at most 1/250 of the
time in each direction, so probing stays under 1 % of the link.
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

SMALL_BITS = 2 * 1500 * 8  # both messages at most two packets: the exchange measures the RTT
LARGE_BITS = 16_000 * 8  # one message at least 16 kB: the exchange measures that direction's rate
PROBE_S, MAX_PROBE_S = 0.025, 0.1  # shortest and longest time of a probe of a rate
PROBE_PER_SPREAD = 10  # a probe takes this many times the spread of round trips: much longer than jitter
MAX_PROBE_BITS = 2_000_000 * 8
PING_BITS = 64
MAX_AGE_S = 10.0  # older estimates are probed
PROBE_SHARE = 1 / 250  # of the time, per direction
MIN_PAUSE_S = 1.0  # between two probes of one kind, so that the first can be answered
PROBE_GROWTH = 8  # bound of a probe, times the largest message measured
PRIOR_BPS = 20e6  # of a rate never measured: the slower of WISV's settings, so large messages are not favoured

_WINDOW = 25  # exchanges of one kind
_WINDOW_S = 60.0  # exchanges older than the newest by more are dropped
_FASTEST_BPS = 1e11
_ROUNDS = 5  # RTT and rates correct one another; an error shrinks by SMALL_BITS / LARGE_BITS or better each time


def profile_csi(profile: LinkProfile) -> Csi:
    """Return the state of a link with known conditions."""
    return Csi(profile.up_bps, profile.down_bps, profile.per_up, profile.per_down, profile.rtt_s)


@dataclass(frozen=True, slots=True)
class LinkSample:
    """One finished exchange: a message down, the peer's work, a message up."""

    at_s: float  # when it ended
    down_bits: int  # payload that crossed the link; likewise ``up_bits``
    up_bits: int
    elapsed_s: float  # from the first bit sent to the last received
    peer_s: float  # part of it that the peer spent between the two messages

    def bits(self, way: Direction) -> int:
        return self.up_bits if way is Direction.UP else self.down_bits

    @property
    def link_s(self) -> float:
        """Seconds on the link; negative where the clocks' rounding exceeds them."""
        return self.elapsed_s - self.peer_s

    @property
    def large(self) -> Direction | None:
        """Direction whose rate it measures: the one with a large message, if the other message is small."""
        if min(self.up_bits, self.down_bits) > SMALL_BITS or max(self.up_bits, self.down_bits) < LARGE_BITS:
            return None
        return Direction.UP if self.up_bits > self.down_bits else Direction.DOWN

    @property
    def small(self) -> bool:
        """Whether it measures the RTT."""
        return max(self.up_bits, self.down_bits) <= SMALL_BITS


@dataclass(frozen=True, slots=True)
class LinkEstimate:
    """State of a link as measured up to now."""

    csi: Csi  # measured; a rate never measured is ``PRIOR_BPS``
    rtt_age_s: float  # seconds since the newest exchange that measured the RTT
    up_age_s: float | None  # likewise for the uplink's rate, None if never measured; ``down_age_s`` for the downlink's
    down_age_s: float | None


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """An exchange of filler bits to make; two small messages are a ping."""

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
        """Take in an exchange; one with medium or two large messages measures nothing and is ignored."""
        way = sample.large
        if way is None and not sample.small:
            return
        window = self._small if way is None else self._large[way]
        window.append(sample)
        while window[0].at_s < sample.at_s - _WINDOW_S:
            window.popleft()
        self._csi = self._measure()

    def estimate(self, now_s: float) -> LinkEstimate | None:
        """Return the estimate; None before the first exchange that measures the RTT."""
        rtt_age_s = _age_s(self._small, now_s)
        if self._csi is None or rtt_age_s is None:
            return None
        up_age_s, down_age_s = (_age_s(self._large[way], now_s) for way in Direction)
        return LinkEstimate(self._csi, rtt_age_s, up_age_s, down_age_s)

    def probe_due(self, now_s: float) -> ProbeRequest | None:
        """Return the probe to make now, if any; the caller makes the exchange and observes it.

        A returned probe counts as under way: the next call returns what else is due, or None.
        """
        if _stale(self._small, now_s) and now_s >= self._next_ping_at_s:
            self._next_ping_at_s = now_s + MIN_PAUSE_S
            return ProbeRequest(down_bits=PING_BITS, up_bits=PING_BITS)
        if self._csi is None:
            return None  # a rate cannot be measured without the RTT
        spread_s = median(abs(time_s - self._csi.rtt_s) for time_s in _round_trips_s(self._small, self._csi))
        probe_s = min(max(spread_s * PROBE_PER_SPREAD, PROBE_S), MAX_PROBE_S)
        for way in Direction:
            rate_bps = self._csi.rate_bps(way)
            measured_bits = [sample.bits(way) for sample in self._large[way]]
            wanted_bits = min(rate_bps * probe_s, MAX_PROBE_BITS, max(measured_bits, default=0) * PROBE_GROWTH)
            bits = max(int(wanted_bits), LARGE_BITS)
            # In messages much shorter than a probe, jitter prevails: they refine an estimate but replace no probe.
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
    """Return the rate by least absolute deviations of time over bits: the median of seconds per bit, by bits."""
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
    """Return the age of the newest sample; None if there is none."""
    newest_at_s = max((sample.at_s for sample in samples), default=None)
    return None if newest_at_s is None else max(now_s - newest_at_s, 0.0)


def _stale(samples: Iterable[LinkSample], now_s: float) -> bool:
    age_s = _age_s(samples, now_s)
    return age_s is None or age_s > MAX_AGE_S
