"""Rows and curves of ``outrider bench paper tslt``, from what was measured. Pure.

Bits are the papers' formulas: payload without headers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np

from bench.bootstrap import Estimate, estimate
from bench.coupling import Scheme
from bench.measured import Measured
from bench.pair_rows import StepTimes
from bench.paper_published import TSLT_EXPANSION, TSLT_LLM_S, TSLT_STEP_RATIO
from bench.rounds import candidate_plan, formula_shape, row_bits, speed_up, tree_rows
from outrider.wire.bits import id_bits

LOGIT_BITS = 16  # the paper's FP16
SCALAR_BITS = 24  # a drafted token's own probability (dssd)
PROB_BITS = 32  # a target probability (dssd): only fp32 is lossless
DEPTH = len(TSLT_EXPANSION)
WIDTHS = tuple(accumulate(TSLT_EXPANSION, mul, initial=1))  # nodes per layer, the prefix first
RATIO_SCHEMES = (Scheme.SINGLE, Scheme.PAIR, Scheme.DISTINCT_PAIR)
RATES_BPS = np.geomspace(1e5, 1e10, 101)


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keeping the draft's top ``kept`` tokens (TSLT figures 3 and 4).

    Attributes:
        row_bits: of one distribution (eq. 3).
        mass: probability kept, along sampled responses and along greedy ones.
        acceptance: by scheme.
        formula_tokens: per round of a chain, eq. 8.
        recorded_tokens: per round of a chain along the recorded responses.
        least_slack: smallest of sigma minus the change of acceptance (eq. 20: never negative, but for rounding).
    """

    kept: int
    share: float
    row_bits: int
    mass: Estimate
    greedy_mass: Estimate
    acceptance: dict[Scheme, Estimate]
    formula_tokens: float
    recorded_tokens: float
    least_slack: float


def truncations(
    sampled: Measured, greedy: Measured, vocab: int, kept: Sequence[int], sizes: Sequence[int]
) -> list[Truncation]:
    """One for each of ``kept``; ``sizes`` are those of the measured top masses."""
    whole = sampled.series[Scheme.SINGLE, vocab].all_acceptances
    found = []
    for count in kept:
        column = sizes.index(count)
        single = sampled.series[Scheme.SINGLE, count]
        lost = 1.0 - np.concatenate([response[:, column] for response in sampled.top_mass])
        found.append(
            Truncation(
                kept=count,
                share=count / vocab,
                row_bits=row_bits(vocab, count, LOGIT_BITS),
                mass=estimate([response[:, column] for response in sampled.top_mass]),
                greedy_mass=estimate([response[:, column] for response in greedy.top_mass]),
                acceptance={scheme: sampled.series[scheme, count].token_acceptance for scheme in RATIO_SCHEMES},
                formula_tokens=formula_shape(single.token_acceptance.mean, DEPTH).tokens,
                recorded_tokens=single.shape(DEPTH).tokens,
                least_slack=float((lost - np.abs(single.all_acceptances - whole)).min()),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class ProtocolBits:
    """What a chain of the paper's depth puts on the link at temperature 1."""

    protocol: str
    acceptance: Estimate
    up_bits_per_drafted: float
    down_bits_per_round: float
    tokens_per_round: float

    @property
    def bits_per_committed(self) -> float:
        """Both directions."""
        return (DEPTH * self.up_bits_per_drafted + self.down_bits_per_round) / self.tokens_per_round


def protocol_bits(sampled: Measured, vocab: int, kept: Sequence[int]) -> list[ProtocolBits]:
    """The papers' protocols and ours."""
    ids, whole = id_bits(vocab), row_bits(vocab, vocab, PROB_BITS)
    single = sampled.series[Scheme.SINGLE, vocab]
    plan = candidate_plan(single.all_acceptances, ids + PROB_BITS, whole, fixed_bits=0.0)
    rejection = single.shape(DEPTH).rejection
    kinds = [("dsd", Scheme.SINGLE, vocab, row_bits(vocab, vocab, LOGIT_BITS) + ids, 0.0)]
    kinds += [(f"tslt K={k}", Scheme.SINGLE, k, row_bits(vocab, k, LOGIT_BITS) + ids, 0.0) for k in kept if k < vocab]
    kinds += [
        ("dssd", Scheme.SINGLE, vocab, ids + SCALAR_BITS, rejection * whole),
        (f"ours: dssd_candidates, m={plan.count}", Scheme.SINGLE, vocab, ids + SCALAR_BITS, rejection * plan.down_bits),
        ("ours: token_ids, shared noise", Scheme.SHARED_NOISE, vocab, ids, 0.0),
        ("ours: token_ids, argmax draft", Scheme.ARGMAX, vocab, ids, 0.0),
    ]
    feedback = ids + id_bits(DEPTH + 1)  # the next token, and how many were accepted
    return [
        ProtocolBits(
            protocol=name,
            acceptance=sampled.series[scheme, count].token_acceptance,
            up_bits_per_drafted=up_bits,
            down_bits_per_round=down_bits + feedback,
            tokens_per_round=sampled.series[scheme, count].shape(DEPTH).tokens,
        )
        for name, scheme, count, up_bits, down_bits in kinds
    ]


@dataclass(frozen=True, slots=True)
class Times:
    """Compute seconds of one round, and of one token of the target alone."""

    name: str
    plain_s: float
    chain_draft_s: float
    chain_verify_s: float
    tree_draft_s: float
    tree_verify_s: float


def both_times(steps: StepTimes) -> tuple[Times, Times]:
    """This machine's times, and the paper's models at their GPU's memory bound (TSLT eq. 5: L * T_SLM + T_LLM)."""
    drafter_s, target_s = steps.drafter_s, steps.target_s
    paper_draft_s = DEPTH * TSLT_LLM_S * TSLT_STEP_RATIO
    return (
        Times(
            "this machine",
            plain_s=target_s[1],
            chain_draft_s=DEPTH * drafter_s[1],
            chain_verify_s=target_s[DEPTH + 1],
            tree_draft_s=sum(drafter_s[width] for width in WIDTHS[:-1]),
            tree_verify_s=target_s[sum(WIDTHS)],
        ),
        Times("68M, 7B at A800's bound", TSLT_LLM_S, paper_draft_s, TSLT_LLM_S, paper_draft_s, TSLT_LLM_S),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """Speed-up over the uplink rate.

    Attributes:
        kept: draft logits per position; 0: none, token ids only.
    """

    times: str
    scheme: Scheme
    kept: int
    bits_per_round: int
    tokens_per_round: float
    rates_bps: tuple[float, ...]
    speed_ups: tuple[float, ...]


def speed_up_curves(sampled: Measured, times: Times, vocab: int, kept: Sequence[int]) -> list[Curve]:
    """Ratio schemes at each truncation (TSLT figures 5 and 6), and token ids with shared noise (ours)."""
    kinds = [(scheme, count) for scheme in RATIO_SCHEMES for count in kept] + [(Scheme.SHARED_NOISE, 0)]
    found = []
    for scheme, count in kinds:
        chain = scheme in (Scheme.SINGLE, Scheme.SHARED_NOISE)
        rows = DEPTH if chain else tree_rows(TSLT_EXPANSION)
        bits = rows * row_bits(vocab, count, LOGIT_BITS) if count else DEPTH * id_bits(vocab)
        tokens = formula_shape(sampled.series[scheme, count or vocab].token_acceptance.mean, DEPTH).tokens
        draft_s = times.chain_draft_s if chain else times.tree_draft_s
        verify_s = times.chain_verify_s if chain else times.tree_verify_s
        speed_ups = [speed_up(tokens, times.plain_s, draft_s, bits / rate, verify_s) for rate in RATES_BPS.tolist()]
        found.append(Curve(times.name, scheme, count, bits, tokens, tuple(RATES_BPS.tolist()), tuple(speed_ups)))
    return found
