"""Protocols under the conditions of DSSD's tables 2 and 3, from what was measured. Pure.

Bits are the papers' formulas: payload without headers. The papers' protocols are charged as they charge them (eq. 5, 9:
distributions only), ours in full.
"""

from dataclasses import dataclass

from bench.coupling import Scheme
from bench.measured import Measured, Series
from bench.pair_rows import StepTimes
from bench.paper_published import DSSD_HETEROGENEOUS, DSSD_HOMOGENEOUS, DSSD_STEP_RATIO, DSSD_TOKENS
from bench.rounds import RoundShape, candidate_plan, dsd_comm_s, dssd_comm_s, row_bits, speed_up
from outrider.wire.bits import id_bits

PROB_BITS = 32  # a probability of a row: what the paper's DSD column implies, and the only lossless width here
SCALAR_BITS = 24


@dataclass(frozen=True, slots=True)
class Condition:
    """Link and window of a table row."""

    ntt_s: float
    rate_bps: float
    window: int

    def __str__(self) -> str:
        """``20 ms, 100 Mb/s, 8``."""
        return f"{self.ntt_s * 1e3:.0f} ms, {self.rate_bps / 1e6:.0f} Mb/s, {self.window}"


@dataclass(frozen=True, slots=True)
class Result:
    """One protocol under one condition.

    Attributes:
        comm_s: of a response of 128 tokens.
        speed_up: with step times measured here.
        speed_up_paper: with T_SLM and T_LLM that reproduce the paper's Table 2.
    """

    condition: Condition
    protocol: str
    rounds: float
    comm_s: float
    speed_up: float
    speed_up_paper: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """One way to sample, measured.

    Attributes:
        support: tokens with any probability in a target row.
    """

    measured: Measured
    vocab: int
    support: int

    @property
    def ratio(self) -> Series:
        """The ratio rule, whole draft rows."""
        return self.measured.series[Scheme.SINGLE, self.vocab]

    @property
    def shared_noise(self) -> Series:
        """Token ids only."""
        return self.measured.series[Scheme.SHARED_NOISE, self.vocab]


def conditions() -> list[Condition]:
    """Those of tables 2 and 3, each once."""
    rows = (*DSSD_HOMOGENEOUS, *DSSD_HETEROGENEOUS)
    return list(dict.fromkeys(Condition(row.ntt_s, row.rate_bps, row.window) for row in rows))


def results(sampling: Sampling, condition: Condition, steps: StepTimes, paper_llm_s: float) -> list[Result]:
    """Every protocol under one condition."""
    window = condition.window
    paper_draft_s = window * DSSD_STEP_RATIO["6.7B"] * paper_llm_s
    return [
        Result(
            condition=condition,
            protocol=protocol,
            rounds=DSSD_TOKENS / shape.tokens,
            comm_s=DSSD_TOKENS / shape.tokens * comm_s,
            speed_up=speed_up(
                shape.tokens, steps.target_s[1], window * steps.drafter_s[1], comm_s, steps.target_s[window + 1]
            ),
            speed_up_paper=speed_up(shape.tokens, paper_llm_s, paper_draft_s, comm_s, paper_llm_s),
        )
        for protocol, shape, comm_s in _rounds(sampling, condition)
    ]


def _rounds(sampling: Sampling, condition: Condition) -> list[tuple[str, RoundShape, float]]:
    """Protocol, average round and its communication seconds: DSD and DSSD as the paper charges them, then ours."""
    window, rate_bps, ntt_s = condition.window, condition.rate_bps, condition.ntt_s
    shape, noise_shape = sampling.ratio.shape(window), sampling.shared_noise.shape(window)
    ids, whole = id_bits(sampling.vocab), row_bits(sampling.vocab, sampling.vocab, PROB_BITS)
    sparse = row_bits(sampling.vocab, sampling.support, PROB_BITS)
    feedback = ids + id_bits(window + 1)  # the next token, and how many were accepted
    small_s = (window * (ids + SCALAR_BITS) + feedback) / rate_bps
    found = [
        ("dsd", shape, dsd_comm_s(window, whole, rate_bps, ntt_s)),
        ("dssd", shape, dssd_comm_s(shape.rejection, whole, rate_bps, ntt_s)),
        ("dssd, row not charged", shape, ntt_s),
    ]
    if sparse < whole:  # truncation by the request itself leaves a row smaller than any number of draws
        sparse_s = small_s + dssd_comm_s(shape.rejection, sparse, rate_bps, ntt_s)
        found.append(("ours: dssd, sparse row", shape, sparse_s))
    else:
        plan = candidate_plan(sampling.ratio.all_acceptances, ids + PROB_BITS, whole, rate_bps * ntt_s)
        again_s = shape.rejection * plan.fallback * ntt_s
        drawn_s = small_s + dssd_comm_s(shape.rejection, plan.down_bits, rate_bps, ntt_s) + again_s
        found.append(("ours: dssd_candidates", shape, drawn_s))
    found.append(("ours: token_ids", noise_shape, (window * ids + feedback) / rate_bps + ntt_s))
    return found
