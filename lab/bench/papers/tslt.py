"""TSLT's figures 3 to 6 as tables: cost of truncation, bits on the link, and the resulting speed-ups.

Speed-ups follow eq. 4, 5, 8, 10 and 26 with acceptance measured here; step times are those of the paper's models at the
memory bound of its GPU, as it prints none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.reports.tables import show_table
from lab.bench.harness.statistics import Estimate, estimate
from lab.bench.papers.coupling import Scheme
from lab.bench.papers.measured import Amount, Measured, Pair, measure, pair_rows
from lab.bench.papers.published import TSLT_EXPANSION, TSLT_KEPT_SHARES, TSLT_LLM_S, TSLT_STEP_RATIO
from lab.bench.papers.rounds import PROB_BITS, SCALAR_BITS, candidate_plan, formula_shape, row_bits, speed_up, tree_rows
from outrider.contracts.requests import SamplingParams
from outrider.wire.bits import id_bits

LOGIT_BITS = 16  # the paper's FP16
DEPTH = len(TSLT_EXPANSION)
RATIO_SCHEMES = (Scheme.SINGLE, Scheme.PAIR, Scheme.DISTINCT_PAIR)
RATES_BPS = (1e6, 1e7, 1e8, 1e9)


@dataclass(frozen=True, slots=True)
class ProtocolBits:
    """Bits on the link of a chain of the paper's depth at temperature 1."""

    protocol: str
    acceptance: Estimate
    up_bits_per_drafted: float
    down_bits_per_round: float
    tokens_per_round: float

    @property
    def bits_per_committed(self) -> float:
        return (DEPTH * self.up_bits_per_drafted + self.down_bits_per_round) / self.tokens_per_round


@dataclass(frozen=True, slots=True)
class SpeedUps:
    """Speed-up at each of ``RATES_BPS``; ``kept`` draft logits per position, 0 for token ids only."""

    scheme: Scheme
    kept: int
    bits_per_round: int
    tokens_per_round: float
    speed_ups: tuple[float, ...]


def reproduce_tslt(pair: Pair, amount: Amount) -> dict[str, object]:
    vocab = pair.target.vocab_size
    kept = [max(1, round(vocab * share)) for share in TSLT_KEPT_SHARES]
    schemes = {**dict.fromkeys(RATIO_SCHEMES, kept), Scheme.SHARED_NOISE: [vocab], Scheme.ARGMAX: [vocab]}
    sampled = measure(pair_rows(pair, SamplingParams(), amount), schemes, kept)
    greedy = measure(pair_rows(pair, SamplingParams(temperature=0.0), amount), {Scheme.ARGMAX: [vocab]}, kept)
    same_argmax = estimate(greedy.series[Scheme.ARGMAX, vocab].given_token)
    bits, speed_ups = protocol_bits(sampled, vocab, kept), speed_ups_of(sampled, vocab, kept)
    print(f"{sampled.positions} positions at temperature 1, {greedy.positions} greedy")
    show_truncations(sampled, greedy, vocab, kept)
    _show_bits(bits, vocab)
    print(f"entropy of the draft {estimate(sampled.entropy_bits)} bits of {np.log2(vocab):.2f}")
    print(f"greedy: the drafter's argmax is the target's at {same_argmax} of the positions")
    _show_speed_ups(speed_ups, vocab)
    return {"greedy_acceptance": same_argmax, "protocols": bits, "speed_ups": speed_ups}


def show_truncations(sampled: Measured, greedy: Measured, vocab: int, kept: Sequence[int]) -> None:
    """Print figures 3 and 4; eq. 3, 8, 15 and 39, and the least slack in the bound of eq. 20 (never negative)."""
    rows = []
    whole = sampled.series[Scheme.SINGLE, vocab].all_acceptances
    for column, count in enumerate(kept):
        single = sampled.series[Scheme.SINGLE, count]
        mass, greedy_mass = (estimate([one[:, column] for one in of.top_mass]) for of in (sampled, greedy))
        lost = 1.0 - np.concatenate([one[:, column] for one in sampled.top_mass])
        rows.append(
            (
                *(count, f"{count / vocab:.1%}", f"{row_bits(vocab, count, LOGIT_BITS):,}", mass, greedy_mass),
                *(sampled.series[scheme, count].token_acceptance for scheme in RATIO_SCHEMES),
                f"{formula_shape(single.token_acceptance.mean, DEPTH).tokens:.3f}",
                f"{single.shape(DEPTH).tokens:.3f}",
                f"{(lost - np.abs(single.all_acceptances - whole)).min():.1e}",
            )
        )
    names = ("K", "of |V|", "bits/row", "mass", "mass, greedy", *RATIO_SCHEMES, "tokens by eq. 8", "recorded", "eq. 20")
    show_table("Top-K truncation at temperature 1 (TSLT figures 3 and 4)", names, rows)


def protocol_bits(sampled: Measured, vocab: int, kept: Sequence[int]) -> list[ProtocolBits]:
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
    feedback = ids + id_bits(DEPTH + 1)  # the next token, and the number accepted
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


def speed_ups_of(sampled: Measured, vocab: int, kept: Sequence[int]) -> list[SpeedUps]:
    """Ratio schemes at each truncation (TSLT figures 5 and 6), and token ids with shared noise (ours)."""
    kinds = [(scheme, count) for scheme in RATIO_SCHEMES for count in kept] + [(Scheme.SHARED_NOISE, 0)]
    found = []
    for scheme, count in kinds:
        chain = scheme in (Scheme.SINGLE, Scheme.SHARED_NOISE)
        rows = DEPTH if chain else tree_rows(TSLT_EXPANSION)
        bits = rows * row_bits(vocab, count, LOGIT_BITS) if count else DEPTH * id_bits(vocab)
        tokens = formula_shape(sampled.series[scheme, count or vocab].token_acceptance.mean, DEPTH).tokens
        draft_s = DEPTH * TSLT_LLM_S * TSLT_STEP_RATIO  # as many drafter steps for a tree (TSLT eq. 5)
        speed_ups = tuple(speed_up(tokens, TSLT_LLM_S, draft_s, bits / rate, TSLT_LLM_S) for rate in RATES_BPS)
        found.append(SpeedUps(scheme, count, bits, tokens, speed_ups))
    return found


def _show_bits(rows: Sequence[ProtocolBits], vocab: int) -> None:
    show_table(
        f"Bits at temperature 1, chains of {DEPTH} (token id {id_bits(vocab)}, logit {LOGIT_BITS}, scalar "
        f"{SCALAR_BITS}, target probability {PROB_BITS} bits; no headers)",
        ("protocol", "acceptance", "up/drafted token", "down/round", "tokens/round", "bits/committed token"),
        [
            (
                *(row.protocol, row.acceptance, f"{row.up_bits_per_drafted:,.0f}", f"{row.down_bits_per_round:,.0f}"),
                *(f"{row.tokens_per_round:.3f}", f"{row.bits_per_committed:,.0f}"),
            )
            for row in rows
        ],
    )


def _show_speed_ups(found: Sequence[SpeedUps], vocab: int) -> None:
    rates = (f"{rate / 1e6:,.0f} Mb/s" for rate in RATES_BPS)
    show_table(
        "Speed-up over the target alone, by uplink rate, 68M and 7B at an A800's bound (TSLT figures 5 and 6)",
        ("scheme", "K", "tokens/round", *rates),
        [
            (
                *(one.scheme, {0: "ids only", vocab: "all"}.get(one.kept, one.kept)),
                *(f"{one.tokens_per_round:.2f}", *(f"{value:.3f}" for value in one.speed_ups)),
            )
            for one in found
        ],
    )
