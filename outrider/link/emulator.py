"""Emulate a link: compute when each message sent would arrive. The caller waits.

A message waits for those before it in its direction, its bits leave at the link's rate, then it travels for half a
round trip. It is cut into packets; a lost packet is sent again at once, until it arrives. So a message takes
``bits / (rate * (1 - PER))`` on average, as in WISV eq. 6. No time is added for detecting a loss: radios do so within a
fraction of a millisecond (link-layer acknowledgements, HARQ), and eq. 6 has no term for it.

Jitter is normal with mean 0, cut off on both sides at three standard deviations, or at half a round trip if that is
less. It never lets a message overtake another. A link without a round trip has no jitter.

Losses and jitter are a function of (seed, direction, number of the message in its direction), so one direction never
changes the other. Messages of one packet, the common case, take their random numbers from a shared block: a generator
for each would cost more than all the rest.
"""

from math import ceil, log
from statistics import NormalDist

import numpy as np

from outrider.contracts.link import Direction
from outrider.link.profiles import LinkProfile
from outrider.link.trace import LinkSource, profile_at, segments

PACKET_BITS = 1500 * 8
_STREAM = 1  # second word of the key; the noise of tokens has 0 there
_BLOCK = 128  # messages
_ONE, _MANY = 0, 1  # Philox counters: jitter and first packet's loss by block; losses of a long message
_LEAST = 2.0**-54  # bounds a uniform number away from 0, which has no logarithm
_NORMAL = NormalDist()
_JITTER_CUT = 3.0  # standard deviations


class LinkEmulator:
    """One drafter's link in both directions."""

    def __init__(self, source: LinkSource, seed: int) -> None:
        """Emulate ``source`` from time 0 of the caller's clock on."""
        self._source, self._seed = source, seed
        self._steady = source if isinstance(source, LinkProfile) and source.steady else None
        self._sent = dict.fromkeys(Direction, 0)
        self._idle_at_s = dict.fromkeys(Direction, 0.0)  # when the last bit of the last message left
        self._delivered_at_s = dict.fromkeys(Direction, 0.0)
        self._block = dict.fromkeys(Direction, -1)
        self._uniforms: dict[Direction, list[list[float]]] = {}

    def deliver(self, direction: Direction, payload_bits: int, now_s: float) -> float:
        """Send a message now and return when it has arrived completely, on the caller's clock.

        Messages of one direction leave in the order of the calls.
        """
        start_at_s = max(now_s, self._idle_at_s[direction])
        if self._steady is not None:  # fast path of the code below, without losses, jitter and changes
            idle_at_s = start_at_s + payload_bits / self._steady.rate_bps(direction)
            arrives_at_s = max(idle_at_s + self._steady.rtt_s / 2.0, self._delivered_at_s[direction])
            self._idle_at_s[direction], self._delivered_at_s[direction] = idle_at_s, arrives_at_s
            return arrives_at_s
        profile = profile_at(self._source, start_at_s)
        sent_bits, jitter_s = self._chances(direction, payload_bits, profile)
        left_at_s = self._left_at_s(direction, sent_bits, start_at_s)
        arrives_at_s = max(left_at_s + profile.rtt_s / 2.0 + jitter_s, self._delivered_at_s[direction])
        self._idle_at_s[direction], self._delivered_at_s[direction] = left_at_s, arrives_at_s
        return arrives_at_s

    def _chances(self, direction: Direction, payload_bits: int, profile: LinkProfile) -> tuple[int, float]:
        """Return the bits to send, repetitions included, and the message's jitter in seconds."""
        number = self._sent[direction]
        self._sent[direction] += 1
        per = profile.per_up if direction is Direction.UP else profile.per_down
        if per == 0.0 and profile.jitter_s == 0.0:
            return payload_bits, 0.0
        shaken, lost = self._uniforms_of(direction, number)
        cut_s = min(_JITTER_CUT * profile.jitter_s, profile.rtt_s / 2.0)
        jitter_s = min(max(profile.jitter_s * _NORMAL.inv_cdf(max(shaken, _LEAST)), -cut_s), cut_s)
        packets = ceil(payload_bits / PACKET_BITS)
        if per == 0.0 or packets == 0:
            return payload_bits, jitter_s
        # Inverse of the geometric distribution: the packet is lost n times with probability per^n (1 - per).
        if packets == 1:
            return payload_bits * (1 + int(log(max(lost, _LEAST)) / log(per))), jitter_s
        times = self._generator(direction, number, _MANY).geometric(1.0 - per, size=packets)
        last_bits = payload_bits - (packets - 1) * PACKET_BITS
        return int(times[:-1].sum()) * PACKET_BITS + int(times[-1]) * last_bits, jitter_s

    def _uniforms_of(self, direction: Direction, number: int) -> list[float]:
        block, within = divmod(number, _BLOCK)
        if self._block[direction] != block:
            self._block[direction] = block
            self._uniforms[direction] = self._generator(direction, block, _ONE).random((_BLOCK, 2)).tolist()
        return self._uniforms[direction][within]

    def _generator(self, direction: Direction, number: int, purpose: int) -> np.random.Generator:
        counter = np.array([0, number, int(direction), purpose], dtype=np.uint64)
        key = np.array([self._seed, _STREAM], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def _left_at_s(self, direction: Direction, bits: float, start_at_s: float) -> float:
        """Return when the last bit has left, through changes of the rate on the way."""
        at_s = start_at_s
        for profile, lasts_s in segments(self._source, start_at_s):
            rate_bps = profile.rate_bps(direction)
            if bits <= rate_bps * lasts_s:
                return at_s + bits / rate_bps
            bits -= rate_bps * lasts_s
            at_s += lasts_s
        raise AssertionError("the last segment holds for ever")
