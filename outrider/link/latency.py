"""Predict seconds from payload bits and the link's state (WISV eq. 6).

A rate counts net of packet errors, ``rate * (1 - PER)``, wherever a paper has one "effective" rate.
"""

from outrider.contracts.link import Csi


def up_s(csi: Csi, bits: float) -> float:
    """Return the seconds of a message's bits on the uplink: the uplink term of WISV eq. 6."""
    return bits / (csi.up_bps * (1.0 - csi.per_up))


def down_s(csi: Csi, bits: float) -> float:
    """Return the seconds of a message's bits on the downlink: the downlink term of WISV eq. 6."""
    return bits / (csi.down_bps * (1.0 - csi.per_down))


def exchange_s(csi: Csi, down_bits: float, up_bits: float) -> float:
    """Return the seconds of one message each way and one round trip: WISV eq. 6, its full-hidden latency."""
    return down_s(csi, down_bits) + up_s(csi, up_bits) + csi.rtt_s
