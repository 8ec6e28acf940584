"""Compute and print what ``outrider bench paper wisv`` says of Table I: its rows, windows, and uploads."""

from pathlib import Path

from cluster.reports.tables import show_table
from lab.bench.papers.wisv.acceptance import A40_PASS_S, best_speed, fitted_step_s, reproduce, worst
from lab.bench.papers.wisv.crossover import RATES_BPS as CROSSOVER_RATES_BPS
from lab.bench.papers.wisv.crossover import RTTS_S, RULE_RTT_S, uploads
from lab.bench.papers.wisv.published import METHODS, RATES_BPS, WINDOWS, printed
from lab.bench.papers.wisv.rounds import Method, OperatingPoint

_MISMATCHES = (0.02, 0.05, 0.1, 0.2)  # of a token; Table I's strict acceptance is about 0.9


def reproduce_wisv(point: OperatingPoint, plots: Path | None) -> dict[str, object]:
    found = {"operating_point": point, **_table_1(point), **_windows(point), **_uploads(point)}
    if plots is not None:
        from lab.bench.papers.wisv.plots import plot_latencies  # noqa: PLC0415 (needs matplotlib)

        plot_latencies(plots / "wisv-latency.png", point)
    return found


def _table_1(point: OperatingPoint) -> dict[str, object]:
    rows, step_s = reproduce(point), fitted_step_s()
    show_table(
        f"Table I from its own AALs and rounds, RTT 50 ms; {point.step_s * 1e3:.2f} ms a drafted token, verification "
        f"{point.verify_s * 1e3:g} ms, hidden state {point.hidden_size} x {point.hidden_bits} bits",
        ("rate", "K", "method", "AAL", "rounds", "latency s", "ours", "error", "tokens/s", "ours", "error"),
        [
            (
                *(_mbps(one.row.rate_bps), one.row.window, one.method),
                *(f"{one.row.aal_tokens:.3f}", f"{one.row.rounds:.3f}"),
                *_beside(one.row.latency_s, one.latency_s, one.latency_error),
                *_beside(one.row.tokens_per_s, one.tokens_per_s, one.throughput_error),
            )
            for one in rows
        ],
    )
    errors = {method: worst(rows, method) for method in METHODS}
    print("largest error: " + ", ".join(f"{method} {100.0 * error:.2f} %" for method, error in errors.items()))
    print(f"fitted to the greedy rows: {step_s * 1e3:.3f} ms a drafted token\n")
    return {"table_1": rows, "largest_errors": errors, "fitted_step_s": step_s}


def _windows(point: OperatingPoint) -> dict[str, object]:
    found = [
        best_speed(method, rate_bps, bonus=bonus, point=point)
        for bonus in (False, True)
        for rate_bps in RATES_BPS
        for method in Method
    ]
    show_table(
        "Each method at its own best window, 1 to 64, RTT 50 ms, by the fitted acceptance",
        ("method", "rate", "bonus", "K", "AAL", "tokens/s", "best printed", "worth it if a pass takes"),
        [
            (
                *(one.method, _mbps(one.rate_bps), "yes" if one.bonus else "no", one.window, f"{one.aal_tokens:.2f}"),
                *(f"{one.tokens_per_s:.2f}", _best_printed(one.method, one.rate_bps)),
                f"> {one.worth_pass_s * 1e3:.1f} ms",
            )
            for one in found
        ],
        f"Reading the target's weights once takes {A40_PASS_S * 1e3:.1f} ms on the testbed's A40: {1 / A40_PASS_S:.1f} "
        "tokens/s without any draft.",
    )
    return {"best_windows": found}


def _uploads(point: OperatingPoint) -> dict[str, object]:
    found = [uploads(window, mismatch, point) for window in WINDOWS for mismatch in _MISMATCHES]
    show_table(
        "RTT in ms above which the full upload is faster than the selective one, by rate; and the rule "
        f"'full above {RULE_RTT_S * 1e3:.0f} ms' over {len(RTTS_S)} RTTs x {len(CROSSOVER_RATES_BPS)} rates",
        ("K, mismatch", *map(_mbps, CROSSOVER_RATES_BPS), "rule wrong in", "loses at most, ms a round"),
        [
            (
                *(f"{one.window}, {one.mismatch:g}", *(f"{rtt_s * 1e3:.1f}" for rtt_s in one.break_even_rtt_s)),
                *(f"{len(one.wrong)} of {len(one.cells)}", f"{max(cell.lost_s for cell in one.cells) * 1e3:.1f}"),
            )
            for one in found
        ],
    )
    return {"upload_rates_bps": CROSSOVER_RATES_BPS, "uploads": found}


def _mbps(rate_bps: float) -> str:
    return f"{rate_bps / 1e6:.0f} Mb/s"


def _best_printed(method: Method, rate_bps: float) -> str:
    rows = printed(method, rate_bps)
    return f"{max(row.tokens_per_s for row in rows):.2f}" if rows else "-"


def _beside(of_print: float, ours: float, error: float | None) -> tuple[str, str, str]:
    if error is None:
        return "-", f"{ours:.3f}", "-"
    return f"{of_print:.3f}", f"{ours:.3f}", f"{100.0 * error:+.2f} %"
