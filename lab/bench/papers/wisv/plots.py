"""Latency over the window by method and link, as in WISV's Figure 4: printed and fitted."""

from pathlib import Path

from matplotlib.ticker import ScalarFormatter

from lab.bench.papers.wisv.acceptance import LONGEST, speed
from lab.bench.papers.wisv.published import RATES_BPS, RTT_S, printed
from lab.bench.papers.wisv.rounds import Method, OperatingPoint
from lab.reports.plots import COLOURS, describe, figure, save

_OUTPUT_TOKENS = 210  # about Table I's AAL * rounds
_RTTS_S = (0.005, RTT_S)
_TICKS_S = (5, 7, 10, 15, 20, 30, 50, 100, 150)
_COLOURS = dict(zip(Method, COLOURS, strict=False))


def plot_latencies(file: Path, point: OperatingPoint) -> None:
    """Seconds of a response at four links; points are printed (RTT 50 ms), lines the fitted acceptances."""
    drawn = figure(11.0, 7.5)
    for panels, rate_bps in zip(drawn.subplots(2, 2, sharex=True), RATES_BPS, strict=True):
        for axes, rtt_s in zip(panels, _RTTS_S, strict=True):
            for method in Method:
                windows = range(1, LONGEST + 1)
                speeds = [
                    speed(method, rate_bps, window, bonus=False, rtt_s=rtt_s, point=point).tokens_per_s
                    for window in windows
                ]
                latencies = [_OUTPUT_TOKENS / one for one in speeds]
                axes.plot(windows, latencies, color=_COLOURS[method], label=method.value)
                rows = printed(method, rate_bps) if rtt_s == RTT_S else ()
                axes.scatter([row.window for row in rows], [row.latency_s for row in rows], 18, _COLOURS[method])
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.set_yticks([tick for tick in _TICKS_S if low < tick < high])
            axes.set_yticks([], minor=True)
            axes.yaxis.set_major_formatter(ScalarFormatter())
            describe(axes, f"{rate_bps / 1e6:.0f} Mb/s, RTT {rtt_s * 1e3:.0f} ms", "window", "seconds of a response")
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(Method))
    save(drawn, file)
