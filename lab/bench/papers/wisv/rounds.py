"""Time of a round at WISV's operating point: eq. 3 to 10, 18 and 19 as arithmetic.

    round  = K * step + verification + link
    link   = one exchange (eq. 6), and for the selective upload one more after a mismatch (eq. 10)

Drafting takes the same for every token: eq. 12 to 16 leave peak rates, utilisations and constants open.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from outrider.contracts.link import Csi
from outrider.link.latency import down_s, exchange_s, up_s
from outrider.wire.bits import id_bits


class Method(StrEnum):
    """What is sent for a block, and the rule that verifies it."""

    SD_GREEDY = "sd_greedy"  # token ids
    SD_REJECT = "sd_reject"  # token ids and whole distributions
    WISV_FULL = "wisv_full"  # token ids and all hidden states
    WISV_SELECTIVE = "wisv_selective"  # token ids; hidden states of mismatches on request


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Models and machines; the defaults fit Table I.

    Attributes:
        overhead_bits: of every message (O_up, O_dn); the paper gives no number, and Table I shows no trace of one.
    """

    step_s: float = 0.01889  # drafter's time per token: fitted, as the paper prints no times of its machines
    verify_s: float = 0.0  # verifier's time per block; Table I leaves none for it
    vocab_size: int = 128_256  # Llama 3
    hidden_size: int = 2_048  # of Llama-3.2-1B
    hidden_bits: int = 16
    prob_bits: int = 16
    overhead_bits: int = 0

    @property
    def state_bits(self) -> int:
        """One hidden state (WISV eq. 3)."""
        return self.hidden_size * self.hidden_bits


TABLE_1_POINT = OperatingPoint()


@dataclass(frozen=True, slots=True)
class Mismatches:
    """Draft tokens of a block that are not the target's argmax behind the draft tokens before them."""

    expected: float
    any: float  # probability of at least one


def mismatches(matches: Sequence[float]) -> Mismatches:
    """For a block whose tokens match with these probabilities, independently."""
    return Mismatches(sum(1.0 - match for match in matches), 1.0 - prod(matches))


def link(rate_bps: float, rtt_s: float) -> Csi:
    """The same both ways and without losses: the paper's rates are effective ones."""
    return Csi(rate_bps, rate_bps, 0.0, 0.0, rtt_s)


def up_bits(method: Method, window: int, point: OperatingPoint = TABLE_1_POINT) -> float:
    """The first message upwards (WISV eq. 5, 7)."""
    each = id_bits(point.vocab_size)
    if method is Method.SD_REJECT:
        each += point.vocab_size * point.prob_bits
    elif method is Method.WISV_FULL:
        each += point.state_bits
    return window * each + point.overhead_bits


def link_s(method: Method, csi: Csi, window: int, found: Mismatches, point: OperatingPoint = TABLE_1_POINT) -> float:
    """Expected seconds of a round on the link (WISV eq. 6, 10); ``found`` matters for the selective upload only."""
    index = id_bits(window + 1)
    feedback = index + id_bits(point.vocab_size) + point.overhead_bits  # eq. 4
    once_s = exchange_s(csi, feedback, up_bits(method, window, point))
    if method is not Method.WISV_SELECTIVE:
        return once_s
    asked_s = csi.rtt_s + down_s(csi, point.overhead_bits) + up_s(csi, point.overhead_bits)
    return (
        once_s + found.any * asked_s + found.expected * (down_s(csi, index) + up_s(csi, point.state_bits))  # eq. 8, 9
    )


def round_s(method: Method, csi: Csi, window: int, found: Mismatches, point: OperatingPoint = TABLE_1_POINT) -> float:
    """Expected seconds of a whole round (WISV eq. 18, 19)."""
    return window * point.step_s + point.verify_s + link_s(method, csi, window, found, point)
