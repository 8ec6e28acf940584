"""``outrider bench paper wisv``: what follows from WISV's printed numbers and equations, without a model."""

from collections.abc import Sequence
from pathlib import Path

from lab.bench.papers.wisv import reports
from lab.bench.papers.wisv.acceptance import fitted, method_fits
from lab.bench.papers.wisv.choices import choose, learned, registered, simulated
from lab.bench.papers.wisv.crossover import RATES_BPS as CROSSOVER_RATES_BPS
from lab.bench.papers.wisv.crossover import uploads
from lab.bench.papers.wisv.published import METHODS, RATES_BPS, WINDOWS
from lab.bench.papers.wisv.rounds import Method, OperatingPoint
from lab.bench.papers.wisv.table import fitted_times, paid_states, reproduce, worst
from lab.bench.papers.wisv.windows import A40_PASS_S, best_speed
from outrider.contracts.requests import ProtocolName

_SLOW_PASS_S = 0.1  # slow enough for drafts to pay
_PASSES = ((0.0, True), (A40_PASS_S, False), (_SLOW_PASS_S, False))  # and whether only drafts are allowed
_RESPONSES = 40
_MISMATCHES = (0.02, 0.05, 0.1, 0.2)  # of a token; Table I's strict acceptance is about 0.9


def reproduce_wisv(point: OperatingPoint, protocols: Sequence[ProtocolName], plots: Path | None) -> dict[str, object]:
    """Compute, print, plot, and return the figures.

    Args:
        point: models and machines.
        protocols: those to show our own choice for; unregistered ones are named and left out.
        plots: a folder for two figures; None draws none.
    """
    found = {
        "operating_point": point,
        **_table_1(point),
        **_acceptances(),
        **_windows(point),
        **_choices(point, protocols),
        **_uploads(point),
    }
    if plots is not None:
        from lab.bench.papers.wisv.plots import plot_latencies, plot_yields  # noqa: PLC0415 (needs matplotlib)

        plot_latencies(plots / "wisv-latency.png", point)
        plot_yields(plots / "wisv-aal.png", point)
    return found


def _table_1(point: OperatingPoint) -> dict[str, object]:
    rows, states = reproduce(point), paid_states(point)
    reports.show_table_1(rows, point)
    errors = {method: worst(rows, method) for method in METHODS}
    print("largest error: " + ", ".join(f"{method} {100.0 * error:.2f} %" for method, error in errors.items()))
    alone, beside = fitted_times(verify=False), fitted_times(verify=True)
    print(
        f"fitted to the greedy rows: {alone.step_s * 1e3:.3f} ms a drafted token; with a verification time beside it "
        f"{beside.step_s * 1e3:.3f} ms and {beside.verify_s * 1e3:+.2f} ms\n"
    )
    reports.show_states(states)
    return {"table_1": rows, "largest_errors": errors, "fitted_times": [alone, beside], "paid_states": states}


def _acceptances() -> dict[str, object]:
    found = [
        method_fits(method, rate_bps, bonus=bonus)
        for bonus in (False, True)
        for method in METHODS
        for rate_bps in RATES_BPS
    ]
    reports.show_fits(found)
    return {"acceptances": found}


def _windows(point: OperatingPoint) -> dict[str, object]:
    found = [
        best_speed(method, rate_bps, bonus=bonus, point=point)
        for bonus in (False, True)
        for rate_bps in RATES_BPS
        for method in Method
    ]
    reports.show_best(found)
    return {"best_windows": found}


def _choices(point: OperatingPoint, protocols: Sequence[ProtocolName]) -> dict[str, object]:
    known = registered(protocols)
    choices = [
        choose(protocol, rate_bps, pass_s=pass_s, drafts_only=drafts_only, point=point)
        for pass_s, drafts_only in _PASSES
        for rate_bps in RATES_BPS
        for protocol in known
    ]
    reports.show_choices(choices, [protocol for protocol in protocols if protocol not in known])
    learning = [
        learned(
            one.protocol,
            one.rate_bps,
            pass_s=one.pass_s,
            fixed_window=one.best_window,
            responses=_RESPONSES,
            point=point,
        )
        for one in choices
        if one.pass_s == _SLOW_PASS_S and simulated(one.protocol, one.rate_bps)
    ]
    reports.show_learned(learning)
    return {"choices": choices, "learned": learning}


def _uploads(point: OperatingPoint) -> dict[str, object]:
    found = [uploads(window, mismatch, point) for window in WINDOWS for mismatch in _MISMATCHES]
    reports.show_uploads(found)
    strict = uploads(WINDOWS[0], round(1.0 - fitted(Method.SD_GREEDY, RATES_BPS[0]).first, 3), point)
    reports.show_cells(strict.cells)
    return {"upload_rates_bps": CROSSOVER_RATES_BPS, "uploads": [*found, strict]}
