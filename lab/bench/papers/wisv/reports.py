"""Tables of ``outrider bench paper wisv``."""

from collections.abc import Sequence

from cluster.reports.tables import percent, show_table
from lab.bench.papers.wisv.acceptance import MethodFits
from lab.bench.papers.wisv.choices import Choice, Learned
from lab.bench.papers.wisv.crossover import RATES_BPS as CROSSOVER_RATES_BPS
from lab.bench.papers.wisv.crossover import RTTS_S, RULE_RTT_S, Cell, Uploads
from lab.bench.papers.wisv.published import WINDOWS, printed
from lab.bench.papers.wisv.rounds import Method, OperatingPoint
from lab.bench.papers.wisv.table import PaidStates, Reproduced
from lab.bench.papers.wisv.windows import A40_PASS_S, Speed


def show_table_1(found: Sequence[Reproduced], point: OperatingPoint) -> None:
    show_table(
        f"Table I from its own AALs and rounds, RTT 50 ms; {point.step_s * 1e3:.2f} ms a drafted token, verification "
        f"{point.verify_s * 1e3:g} ms, hidden state {point.hidden_size} x {point.hidden_bits} bits",
        ("rate", "K", "method", "AAL", "rounds", "latency s", "ours", "error", "tokens/s", "ours", "error"),
        [
            (
                *(mbps(one.row.rate_bps), one.row.window, one.method),
                *(f"{one.row.aal_tokens:.3f}", f"{one.row.rounds:.3f}"),
                *_beside(one.row.latency_s, one.latency_s, one.latency_error),
                *_beside(one.row.tokens_per_s, one.tokens_per_s, one.throughput_error),
            )
            for one in found
        ],
    )


def show_states(found: Sequence[PaidStates]) -> None:
    """Print the states that WISV's latencies leave time for."""
    show_table(
        "Hidden states (fp16) that WISV's printed latency leaves time to upload in a round; eq. 5 says K",
        ("rate", "K", "uploaded", "2 (K - accepted)", "latency error with these"),
        [
            (
                *(mbps(one.row.rate_bps), one.row.window, f"{one.paid:.1f}", f"{one.behind:.1f}"),
                _signed(one.behind_error),
            )
            for one in found
        ],
        "2 (K - accepted): fp32 states from the first mismatch of greedy verification on. At 500 Mb/s, 0.1 % of a "
        "drafting step is worth 0.3 K states.",
    )


def show_fits(found: Sequence[MethodFits]) -> None:
    """Print the acceptances that fit each AAL, and the best for all of them."""
    show_table(
        "Token acceptance that gives the printed AAL of each K, whether one gives all of them, and the best fits",
        (
            *("method, rate", "bonus", *(f"K={window}" for window in WINDOWS), "one for all"),
            *("constant", "worst AAL", "drifting with depth i", "worst AAL"),
        ),
        [
            (
                *(f"{one.method}, {mbps(one.rate_bps)}", _yes(one.bonus)),
                *(f"{(low + high) / 2:.4f}" for low, high in one.bounds),
                *(_yes(one.one_for_all), f"{one.constant.acceptance.first:.4f}", percent(one.constant.worst)),
                f"{one.drifting.acceptance.first:.4f} exp({one.drifting.acceptance.drift:+.5f} i)",
                percent(one.drifting.worst),
            )
            for one in found
        ],
    )


def show_best(found: Sequence[Speed]) -> None:
    """Print each method at its own best window."""
    show_table(
        "Each method at its own best window, 1 to 64, RTT 50 ms, by the fitted acceptance",
        ("method", "rate", "bonus", "K", "AAL", "tokens/s", "best printed", "worth it if a pass takes"),
        [
            (
                *(one.method, mbps(one.rate_bps), _yes(one.bonus), one.window, f"{one.aal_tokens:.2f}"),
                *(f"{one.tokens_per_s:.2f}", _best_printed(one.method, one.rate_bps)),
                f"> {one.worth_pass_s * 1e3:.1f} ms",
            )
            for one in found
        ],
        f"Reading the target's weights once takes {A40_PASS_S * 1e3:.1f} ms on the testbed's A40: {1 / A40_PASS_S:.1f} "
        "tokens/s without any draft.",
    )


def show_choices(found: Sequence[Choice], left_out: Sequence[str]) -> None:
    """Print the policy's drafts."""
    show_table(
        "Our own choice (policy cheapest, acceptance known, bonus token), RTT 50 ms; K 0 is the target alone",
        ("protocol", "rate", "target's pass", "may it not draft", "K", "tokens/s", "best K", "tokens/s"),
        [
            (
                *(one.protocol, mbps(one.rate_bps), f"{one.pass_s * 1e3:.0f} ms", _yes(not one.drafts_only)),
                *(one.window, f"{one.tokens_per_s:.2f}", one.best_window, f"{one.best_tokens_per_s:.2f}"),
            )
            for one in found
        ],
        f"Not registered here, and left out: {', '.join(left_out)}." if left_out else "",
    )


def show_learned(found: Sequence[Learned]) -> None:
    """Print the learning policy in the simulator."""
    show_table(
        "The same in the simulator: acceptance learned from verdicts, against the best fixed window",
        ("protocol", "rate", "target's pass", "tokens/s", "fixed K", "tokens/s", "share"),
        [
            (
                *(one.protocol, mbps(one.rate_bps), f"{one.pass_s * 1e3:.0f} ms", f"{one.tokens_per_s:.2f}"),
                *(one.fixed_window, f"{one.fixed_tokens_per_s:.2f}"),
                percent(one.tokens_per_s / one.fixed_tokens_per_s),
            )
            for one in found
        ],
    )


def show_uploads(found: Sequence[Uploads]) -> None:
    """Print the break-even of the uploads, and how the rule fares."""
    show_table(
        "RTT in ms above which the full upload is faster than the selective one, by rate; and the rule "
        f"'full above {RULE_RTT_S * 1e3:.0f} ms' over {len(RTTS_S)} RTTs x {len(CROSSOVER_RATES_BPS)} rates",
        ("K, mismatch", *map(mbps, CROSSOVER_RATES_BPS), "rule wrong in", "loses at most, ms a round"),
        [
            (
                *(f"{one.window}, {one.mismatch:g}", *(f"{rtt_s * 1e3:.1f}" for rtt_s in one.break_even_rtt_s)),
                *(f"{len(one.wrong)} of {len(one.cells)}", f"{max(cell.lost_s for cell in one.cells) * 1e3:.1f}"),
            )
            for one in found
        ],
    )


def show_cells(cells: Sequence[Cell]) -> None:
    """Print one grid: the faster upload, by how much, and where the rule takes the other one."""
    by_rtt = [[one for one in cells if one.rtt_s == rtt_s] for rtt_s in RTTS_S]
    show_table(
        f"The faster upload and ms it saves in a round, K = {cells[0].window}, mismatch {cells[0].mismatch:.3f}; "
        "! where the rule takes the other",
        ("RTT", *(mbps(rate_bps) for rate_bps in CROSSOVER_RATES_BPS)),
        [(f"{row[0].rtt_s * 1e3:.0f} ms", *map(_cell, row)) for row in by_rtt],
    )


def mbps(rate_bps: float) -> str:
    """``500 Mb/s``."""
    return f"{rate_bps / 1e6:.0f} Mb/s"


def _best_printed(method: Method, rate_bps: float) -> str:
    rows = printed(method, rate_bps)
    return f"{max(row.tokens_per_s for row in rows):.2f}" if rows else "-"


def _yes(so: bool) -> str:
    return "yes" if so else "no"


def _cell(one: Cell) -> str:
    name = "full" if one.best is Method.WISV_FULL else "selective"
    return f"{name} {abs(one.full_s - one.selective_s) * 1e3:.1f}{' !' if one.lost_s else ''}"


def _beside(of_print: float, ours: float, error: float | None) -> tuple[str, str, str]:
    if error is None:
        return "-", f"{ours:.3f}", "-"
    return f"{of_print:.3f}", f"{ours:.3f}", _signed(error)


def _signed(error: float) -> str:
    return f"{100.0 * error:+.2f} %"
