"""Rounds of speculative decoding along a recorded response, and their cost: the papers' formulas, errata applied.

Times are seconds, rates bit/s. The link's fixed delay (NTT, RTT) is per round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np
import numpy.typing as npt

from outrider.contracts.errors import ParameterError
from outrider.wire.bits import id_bits

SCALAR_BITS = 24  # a draft token's own probability (dssd)
PROB_BITS = 32  # a target probability (dssd): as implied by DSSD's DSD column, and only fp32 is lossless


@dataclass(frozen=True, slots=True)
class RoundShape:
    tokens: float  # committed, the correction or bonus token included
    rejection: float  # probability that the round ends with a rejection


def formula_shape(acceptance: float, window: int) -> RoundShape:
    """A round if every draft token is accepted with the same probability (TSLT eq. 8; the share of DSSD eq. 9)."""
    return RoundShape(sum(acceptance**i for i in range(window + 1)), 1.0 - acceptance**window)


def recorded_shape(responses: Sequence[npt.NDArray[np.float64]], window: int) -> RoundShape:
    """The average round along responses the target drew: exact for them, without equal or independent positions.

    Args:
        responses: for each, ``[n]`` probabilities that its tokens came from the draft (``Coupled.given_token``).
        window: draft tokens per round. Rounds that would draft past a response's end are left out.

    Raises:
        ParameterError: every response is shorter than a round's draft.
    """
    tokens = full = rounds = 0.0
    for given in responses:
        starts = np.zeros(len(given) + window + 2)  # probability that a round starts at a position
        starts[0] = 1.0
        for at in range(len(given) - window + 1):
            reached = np.concatenate(([1.0], np.cumprod(given[at : at + window])))  # [window + 1]
            ended = reached - np.append(reached[1:], 0.0)  # after this many accepted tokens
            starts[at + 1 : at + window + 2] += starts[at] * ended
            rounds += starts[at]
            tokens += starts[at] * float(reached.sum())
            full += starts[at] * float(reached[-1])
    if not rounds:
        needed = f"a response of at least {window} tokens"
        raise ParameterError("a round (more by --prompts, --tokens)", needed, max(map(len, responses), default=0))
    return RoundShape(tokens / rounds, 1.0 - full / rounds)


def row_bits(vocab: int, kept: int, value_bits: int) -> int:
    """One distribution with ``kept`` values (TSLT eq. 3); a whole one needs no token ids."""
    return vocab * value_bits if kept >= vocab else kept * (value_bits + id_bits(vocab))


def tree_rows(expansion: Sequence[int]) -> int:
    """Distributions behind a token tree: one per node that has children (TSLT eq. 27)."""
    return sum(accumulate(expansion[:-1], mul, initial=1))


def speed_up(tokens: float, plain_s: float, draft_s: float, comm_s: float, verify_s: float) -> float:
    """Speed-up over the target alone at ``plain_s`` a token (TSLT eq. 5, 8 and 10; DSSD eq. 6, 13, 14).

    TSLT eq. 9 as typeset multiplies all but T_LLM by (1 - alpha) * L, and its eq. 28 is always below 1: neither is
    used.
    """
    return tokens * plain_s / (draft_s + comm_s + verify_s)


def rows_s(rows: float, bits: float, rate_bps: float, fixed_s: float) -> float:
    """Distributions on the link: one up for each draft token (DSSD eq. 5), one down if any was rejected (eq. 9)."""
    return rows * bits / rate_bps + fixed_s


@dataclass(frozen=True, slots=True)
class CandidatePlan:
    """Number of draws from the target to send after a rejection, in place of its row."""

    count: int  # draws
    down_bits: float  # expected, including the row if it must be fetched after all
    fallback: float  # probability that no draw is taken, which costs the row and one more fixed delay


def candidate_plan(
    acceptances: npt.NDArray[np.float64], draw_bits: float, row_bits: float, fixed_bits: float, most: int = 4096
) -> CandidatePlan:
    """The power of two with the fewest expected bits per rejection.

    A draw from the target is taken with probability TV, so ``count`` of them all fail with acceptance**count;
    rejections occur at a position in proportion to its TV.

    Args:
        acceptances: ``[n]`` 1 - TV at the positions, not all 1.
        draw_bits: of one draw, its token id and probability.
        row_bits: of the row that is fetched if all fail.
        fixed_bits: cost of a second exchange in bits: rate times fixed delay.
        most: largest count tried.
    """
    weights = (1.0 - acceptances) / (1.0 - acceptances).sum()

    def plan(count: int) -> CandidatePlan:
        fallback = float((weights * acceptances**count).sum())
        return CandidatePlan(count, count * draw_bits + fallback * row_bits, fallback)

    plans = [plan(2**i) for i in range(most.bit_length())]
    return min(plans, key=lambda tried: tried.down_bits + tried.fallback * fixed_bits)
