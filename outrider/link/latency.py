"""Predicted seconds from payload bits and the state of the link: the papers' formulas, one definition each.

A rate counts with what packet errors leave of it, ``rate * (1 - PER)``, wherever a paper has one "effective" rate.
"""

from math import ceil, log2

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


def selective_hidden_s(
    csi: Csi, draft_bits: float, request_bits: float, hidden_bits: float, feedback_bits: float
) -> float:
    """WISV eq. 10: the draft goes up, a request down, hidden vectors up, the feedback down; two round trips.

    ``hidden_bits`` of 0 is a round without a mismatch: nothing is requested, and there is one round trip.
    """
    first_s = exchange_s(csi, feedback_bits, draft_bits)
    return first_s + exchange_s(csi, request_bits, hidden_bits) if hidden_bits else first_s


def dssd_comm_s(csi: Csi, token_acceptance: float, window: int, row_bits: float) -> float:
    """DSSD eq. 9: a target row of ``row_bits`` comes down unless the whole window was accepted; the rest is RTT."""
    return (1.0 - token_acceptance**window) * down_s(csi, row_bits) + csi.rtt_s


def dsd_comm_s(csi: Csi, window: int, row_bits: float) -> float:
    """What DSSD eq. 9 replaces: a draft row of ``row_bits`` for each token goes up (DSD; DSSD section 2.2)."""
    return window * up_s(csi, row_bits) + csi.rtt_s


def tslt_comm_s(csi: Csi, rows: int, kept_tokens: int, vocab_size: int, prob_bits: int) -> float:
    """TSLT eq. 4: truncated draft rows of (index, logit) pairs go up; the paper charges no RTT.

    ``rows`` is the window of a chain, and |Q| of a tree (eq. 27).
    """
    return rows * up_s(csi, kept_tokens * (prob_bits + ceil(log2(vocab_size))))


def round_s(steps: int, step_s: float, verify_s: float, comm_s: float) -> float:
    """A round: draft, send, verify. DSSD eq. 13, TSLT eq. 5, and with ``steps`` layers of a tree TSLT eq. 26."""
    return steps * step_s + comm_s + verify_s
