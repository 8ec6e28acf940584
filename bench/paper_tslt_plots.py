"""Plots of ``outrider bench paper tslt``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.coupling import Scheme
from bench.measured import Measured
from bench.paper_published import TSLT_TOP_MASS
from bench.tslt_results import Curve
from cluster.reports.plots import COLOURS, describe, figure, save

_SCHEME_NAMES = {
    Scheme.SINGLE: "one candidate",
    Scheme.PAIR: "two, with replacement",
    Scheme.DISTINCT_PAIR: "two, distinct",
}


def plot_mass(file: Path, shares: npt.NDArray[np.float64], masses: Mapping[str, npt.NDArray[np.float64]]) -> None:
    """Mass of the draft's top K over K (TSLT figure 3); the band is the middle half of the positions."""
    drawn = figure(6.4, 4.2)
    axes = drawn.subplots()
    for (name, mass), colour in zip(masses.items(), COLOURS, strict=False):
        axes.plot(shares, mass.mean(0), color=colour, label=f"this pair, {name} (mean)")
        low, high = np.quantile(mass, (0.25, 0.75), axis=0)
        axes.fill_between(shares, low, high, color=colour, alpha=0.15, linewidth=0)
    published = np.array(TSLT_TOP_MASS)
    axes.plot(published[:, 0], published[:, 1], "kx", markersize=8, label="68M-Llama, as printed in section 5.1")
    axes.set_xscale("log")
    axes.set_ylim(0.0, 1.02)
    describe(axes, "Probability mass of the draft's top K", "K / |V|", "cumulative probability")
    axes.legend(loc="lower right", fontsize=8)
    save(drawn, file)


def plot_acceptance(file: Path, sampled: Measured, vocab: int, kept: Sequence[int]) -> None:
    """Acceptance over K (TSLT figure 4), with 95 % intervals, beside what needs no logits on the link."""
    drawn = figure(6.4, 4.2)
    axes = drawn.subplots()
    shares = np.array(kept) / vocab
    for number, (scheme, name) in enumerate(_SCHEME_NAMES.items()):
        found = [sampled.series[scheme, count].token_acceptance for count in kept]
        means = np.array([at.mean for at in found])
        spans = [means - [at.low for at in found], [at.high for at in found] - means]
        moved = shares * 1.06 ** (number - 1)  # the intervals overlap otherwise
        axes.errorbar(moved, means, spans, color=COLOURS[number], marker="o", capsize=3, label=name)
    for scheme, style in ((Scheme.SHARED_NOISE, "--"), (Scheme.ARGMAX, ":")):
        mean = sampled.series[scheme, vocab].token_acceptance.mean
        axes.axhline(mean, color="grey", linestyle=style, label=f"{scheme.value} (token ids only)")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0.0)
    describe(axes, "Acceptance of a draft position at temperature 1", "K / |V|", "probability of acceptance")
    axes.legend(loc="lower right", fontsize=8)
    save(drawn, file)


def plot_speed_up(file: Path, curves: Sequence[Curve], vocab: int) -> None:
    """Speed-up over the uplink rate (TSLT figures 5 and 6)."""
    names = list(dict.fromkeys(curve.times for curve in curves))
    schemes = {Scheme.SINGLE: "chain of 3", Scheme.PAIR: "tree <2,2,2>"}
    drawn = figure(9.6, 7.0)
    grid = drawn.subplots(len(names), len(schemes), sharex=True, sharey="row")
    for row, name in zip(grid, names, strict=True):
        for axes, (scheme, shape) in zip(row, schemes.items(), strict=True):
            chosen = [curve for curve in curves if curve.times == name and curve.scheme == scheme]
            for curve, colour in zip(chosen, COLOURS, strict=False):
                label = f"K = {curve.kept:,}" if curve.kept < vocab else f"whole rows, |V| = {vocab:,}"
                axes.plot(np.array(curve.rates_bps) / 1e6, curve.speed_ups, color=colour, label=label)
            ids = next(curve for curve in curves if curve.times == name and not curve.kept)
            axes.plot(
                np.array(ids.rates_bps) / 1e6,
                ids.speed_ups,
                color="grey",
                linestyle="--",
                label="token ids, shared noise, chain (ours)",
            )
            axes.axhline(1.0, color="black", linewidth=0.8)
            axes.set_xscale("log")
            describe(axes, f"{shape}; step times: {name}", "uplink rate (Mb/s)", "")
        row[0].set_ylabel("speed-up over the target alone")
        row[0].set_ylim(bottom=0.0)
    drawn.suptitle("Speed-up by what crosses the uplink", fontsize=11)
    drawn.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    save(drawn, file)
