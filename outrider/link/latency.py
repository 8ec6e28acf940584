"""Predicted seconds from payload bits and the state of the link: WISV eq. 6.

A rate counts with what packet errors leave of it, ``rate * (1 - PER)``, wherever a paper has one "effective" rate.
"""

from outrider.contracts.link import Csi


def up_s(csi: Csi, bits: float) -> float:
    """Seconds that a message's bits take upwards: the uplink term of WISV eq. 6."""
    return bits / (csi.up_bps * (1.0 - csi.per_up))


def down_s(csi: Csi, bits: float) -> float:
    """Seconds that a message's bits take downwards: the downlink term of WISV eq. 6."""
    return bits / (csi.down_bps * (1.0 - csi.per_down))


def exchange_s(csi: Csi, down_bits: float, up_bits: float) -> float:
    """One message each way and one round trip: WISV eq. 6, its full-hidden latency, and any other exchange's."""
    return down_s(csi, down_bits) + up_s(csi, up_bits) + csi.rtt_s
