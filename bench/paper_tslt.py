"""``outrider bench paper tslt``: figures 3 to 6 of TSLT with a real pair.

Acceptance is exact at every measured position, from both models' distributions. Speed-ups follow TSLT eq. 4, 5, 8, 10
and 26 with acceptance measured here, once with this machine's step times and once with the paper's models at the
memory bound of its GPU (it prints no step times).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.bootstrap import estimate
from bench.coupling import Scheme
from bench.measured import measure
from bench.pair_rows import StepTimes, add_pair_options, load_pair, measure_steps, pair_rows
from bench.paper_published import TSLT_KEPT_SHARES, TSLT_LLM_S, TSLT_STEP_RATIO
from bench.paper_tslt_plots import plot_acceptance, plot_mass, plot_speed_up
from bench.tslt_results import (
    DEPTH,
    LOGIT_BITS,
    PROB_BITS,
    RATIO_SCHEMES,
    SCALAR_BITS,
    WIDTHS,
    Curve,
    ProtocolBits,
    Truncation,
    both_times,
    protocol_bits,
    speed_up_curves,
    truncations,
)
from cluster.reports.json_file import write_json
from cluster.reports.tables import show_table
from outrider.contracts.requests import SamplingParams
from outrider.wire.bits import id_bits

_PRINTED_BPS = (1e6, 1e7, 1e8, 1e9)


def main(argv: Sequence[str]) -> None:
    """Measure, print tables, write JSON and plots."""
    parser = argparse.ArgumentParser(prog="outrider bench paper tslt", description=__doc__)
    add_pair_options(parser)
    parser.add_argument("--out", type=Path, default=Path("paper-tslt"))
    args = parser.parse_args(argv)
    pair = load_pair(args.target, args.drafter)
    vocab = pair.target.vocab_size
    kept = [max(1, round(vocab * share)) for share in TSLT_KEPT_SHARES]
    sizes = sorted({*np.geomspace(1, vocab, 80).round().astype(int).tolist(), *kept})
    steps = measure_steps(
        pair, target_widths=(1, DEPTH + 1, sum(WIDTHS)), drafter_widths=WIDTHS[:-1], repeats=args.repeats
    )
    amounts = {"prompts": args.prompts, "tokens": args.tokens}
    schemes = {**dict.fromkeys(RATIO_SCHEMES, kept), Scheme.SHARED_NOISE: [vocab], Scheme.ARGMAX: [vocab]}
    sampled = measure(pair_rows(pair, SamplingParams(seed=args.seed), **amounts), schemes, sizes)
    greedy = measure(pair_rows(pair, SamplingParams(temperature=0.0), **amounts), {Scheme.ARGMAX: [vocab]}, sizes)
    same_argmax = estimate(greedy.series[Scheme.ARGMAX, vocab].given_token)
    entropy = estimate(sampled.entropy_bits)
    truncated = truncations(sampled, greedy, vocab, kept, sizes)
    bits = protocol_bits(sampled, vocab, kept)
    curves = [curve for times in both_times(steps) for curve in speed_up_curves(sampled, times, vocab, kept)]
    print(
        f"{pair.target.name} and {pair.drafter.name}, float32, one thread; {sampled.positions} positions "
        f"at temperature 1, {greedy.positions} greedy, in {len(sampled.top_mass)} responses each; intervals are 95 %"
    )
    _print_truncations(truncated)
    _print_bits(bits, vocab)
    print(f"entropy of the draft given the prefix {entropy} bits; log2|V| = {np.log2(vocab):.2f} bits")
    print(f"greedy: the drafter's argmax is the target's at {same_argmax} of the positions")
    _print_steps(steps)
    _print_speed_ups(curves, vocab)
    content = {
        "target": pair.target.name,
        "drafter": pair.drafter.name,
        "positions": {"temperature_1": sampled.positions, "greedy": greedy.positions},
        "greedy_acceptance": same_argmax,
        "draft_entropy_bits": entropy,
        "truncation": truncated,
        "protocols": bits,
        "steps": steps,
        "speed_up": curves,
    }
    write_json(args.out / "tslt.json", content)
    masses = {"temperature 1": np.concatenate(sampled.top_mass), "greedy": np.concatenate(greedy.top_mass)}
    plot_mass(args.out / "mass.png", np.array(sizes) / vocab, masses)
    plot_acceptance(args.out / "acceptance.png", sampled, vocab, kept)
    plot_speed_up(args.out / "speed_up.png", curves, vocab)


def _print_truncations(rows: Sequence[Truncation]) -> None:
    show_table(
        "Top-K truncation at temperature 1 (TSLT figures 3 and 4; eq. 3, 15, 39)",
        ("K", "of |V|", "bits/row", "mass", "mass, greedy", *(scheme.value for scheme in RATIO_SCHEMES)),
        [
            (row.kept, f"{row.share:.1%}", f"{row.row_bits:,}", row.mass, row.greedy_mass, *row.acceptance.values())
            for row in rows
        ],
    )
    show_table(
        f"Tokens per round of a chain of {DEPTH}, and TSLT eq. 20",
        ("K", "eq. 8", "recorded", "least of sigma - |change of acceptance|"),
        [
            (row.kept, f"{row.formula_tokens:.3f}", f"{row.recorded_tokens:.3f}", f"{row.least_slack:.1e}")
            for row in rows
        ],
    )


def _print_bits(rows: Sequence[ProtocolBits], vocab: int) -> None:
    show_table(
        f"Bits at temperature 1, chains of {DEPTH} (token id {id_bits(vocab)}, logit {LOGIT_BITS}, scalar "
        f"{SCALAR_BITS}, target probability {PROB_BITS} bits; no headers)",
        ("protocol", "acceptance", "up/drafted token", "down/round", "tokens/round", "bits/committed token"),
        [
            (
                row.protocol,
                row.acceptance,
                f"{row.up_bits_per_drafted:,.0f}",
                f"{row.down_bits_per_round:,.0f}",
                f"{row.tokens_per_round:.3f}",
                f"{row.bits_per_committed:,.0f}",
            )
            for row in rows
        ],
    )


def _print_steps(steps: StepTimes) -> None:
    print(f"\n{steps}")
    print(
        f"T_SLM / T_LLM here {steps.ratio:.2f}; the paper prints none: its models' weights give "
        f"{TSLT_STEP_RATIO:.3f}, with T_LLM >= {TSLT_LLM_S * 1e3:.1f} ms"
    )


def _print_speed_ups(curves: Sequence[Curve], vocab: int) -> None:
    show_table(
        "Speed-up over the target alone, by uplink rate (TSLT figures 5 and 6)",
        ("times", "scheme", "K", "tokens/round", *(f"{rate / 1e6:,.0f} Mb/s" for rate in _PRINTED_BPS)),
        [
            (
                curve.times,
                curve.scheme,
                {0: "ids only", vocab: "all"}.get(curve.kept, curve.kept),
                f"{curve.tokens_per_round:.2f}",
                *(f"{np.interp(rate, curve.rates_bps, curve.speed_ups):.3f}" for rate in _PRINTED_BPS),
            )
            for curve in curves
        ],
    )
