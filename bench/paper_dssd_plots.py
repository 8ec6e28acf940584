"""Plots of ``outrider bench paper dssd``."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.dssd_results import Condition, Result
from bench.paper_published import (
    DSSD_ALPHAS,
    DSSD_COMM_MS,
    DSSD_DOWN_S,
    DSSD_HOMOGENEOUS,
    DSSD_NTT_S,
)
from bench.rounds import dssd_comm_s, formula_shape
from cluster.reports.plots import COLOURS, describe, figure, save


def plot_table_1(file: Path) -> None:
    """Eq. 9 over the acceptance, with Table 1's points."""
    drawn = figure(6.4, 4.2)
    axes = drawn.subplots()
    alphas = np.linspace(0.4, 1.0, 121)
    for (window, printed), colour in zip(DSSD_COMM_MS.items(), COLOURS, strict=False):
        times_ms = [
            1e3 * dssd_comm_s(formula_shape(alpha, window).rejection, DSSD_DOWN_S, 1.0, DSSD_NTT_S) for alpha in alphas
        ]
        axes.plot(alphas, times_ms, color=colour, label=f"eq. 9, window {window}")
        axes.plot(DSSD_ALPHAS, printed, "x", color=colour)
    axes.plot([], [], "kx", label="Table 1 as printed")
    describe(axes, "DSSD Table 1: T_down 8 ms, T_NTT 20 ms", "acceptance of a draft token", "T_comm per round (ms)")
    axes.legend(loc="lower left", fontsize=8)
    save(drawn, file)


def plot_conditions(file: Path, name: str, results: Sequence[Result]) -> None:
    """Communication time and speed-up of every protocol by condition, with Table 2's figures."""
    conditions = list(dict.fromkeys(result.condition for result in results))
    protocols = list(dict.fromkeys(result.protocol for result in results))
    at = {condition: row for row, condition in enumerate(conditions)}
    drawn = figure(10.5, 5.6)
    times, speeds = drawn.subplots(1, 2, sharey=True)
    for number, (protocol, colour) in enumerate(zip(protocols, COLOURS, strict=False)):
        mine = [result for result in results if result.protocol == protocol]
        rows = [at[result.condition] + 0.1 * (number - len(protocols) / 2) for result in mine]
        # Without NTT and row nothing is left of some times, and a logarithmic axis has no place for it.
        times.plot([max(result.comm_s, 1e-3) for result in mine], rows, "o", color=colour, label=protocol)
        speeds.plot([result.speed_up_paper for result in mine], rows, "o", color=colour, label=protocol)
    for row in DSSD_HOMOGENEOUS:
        here = at[Condition(row.ntt_s, row.rate_bps, row.window)]
        times.plot([row.dsd_comm_s, row.dssd_comm_s], [here + 0.3] * 2, "kx")
        speeds.plot([row.dsd_speed_up, row.dssd_speed_up], [here + 0.3] * 2, "kx")
    times.plot([], [], "kx", label="Table 2: DSD and DSSD")
    times.set_xscale("log")
    times.set_yticks(range(len(conditions)), [str(condition) for condition in conditions])
    times.invert_yaxis()
    speeds.axvline(1.0, color="black", linewidth=0.8)
    speeds.set_xlim(left=0.0)
    describe(times, "Communication time of 128 tokens", "T_comm (s; below 1 ms drawn at 1 ms)", "NTT, rate, window")
    describe(speeds, "Speed-up at Table 2's step times", "speed-up over the target alone", "")
    drawn.suptitle(f"DSSD's conditions with this pair's acceptance at temperature 1, {name}", fontsize=11)
    drawn.legend(*times.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    save(drawn, file)
