"""Tables of measurements with a pair."""

from collections.abc import Sequence

from cluster.reports.tables import show_table
from lab.bench.papers.wisv.published import METHODS as PRINTED
from lab.bench.papers.wisv.published import printed
from lab.bench.papers.wisv_pair.cluster import LINKS, Row
from lab.bench.papers.wisv_pair.frontier import WINDOW, Frontier, JudgingTime
from lab.reports.columns import percent
from lab.training.head.sweep import SweptRow


def show_frontier(found: Frontier) -> None:
    strict = found.strict
    show_table(
        f"{found.tasks} tasks, K = {found.window}: cost and gain of each rule; strict verification scores "
        f"{strict.score:.3f} with {strict.aal:.2f} tokens a round in {strict.rounds:.1f} rounds",
        ("rule", "threshold", "link", "score", "drop", "95 % below", "passed", "AAL", "more", "rounds", "fewer"),
        [_row_cells(row, strict) for row in found.rows if row is not strict],
    )


def _row_cells(row: SweptRow, strict: SweptRow) -> Sequence[object]:
    return (
        *(row.rule, f"{row.threshold:.2f}" if row.link else "", row.link),
        *(f"{row.score:.3f}", f"{row.drop:+.4f}", f"{row.drop_bound:+.4f}", percent(1.0 - row.rejection_share)),
        *(f"{row.aal:.2f}", percent(row.aal / strict.aal - 1.0)),
        *(f"{row.rounds:.1f}", percent(1.0 - row.rounds / strict.rounds)),
    )


def show_judging(found: Sequence[JudgingTime]) -> None:
    show_table(
        f"Judging half of the tokens of each block, {WINDOW} of them, in one call, beside the target's pass",
        ("blocks", "mismatches", "pass ms", "judge ms", "share"),
        [
            (one.blocks, one.mismatches, f"{one.pass_s * 1e3:.1f}", f"{one.judge_s * 1e3:.3f}", f"{one.share:.2%}")
            for one in found
        ],
    )


def show_rows(found: Sequence[Row]) -> None:
    """Print Table I of this pair on a cluster, with the paper's figures where it has the row."""
    show_table(
        "On a cluster over emulated links, of an answer, 95 % intervals over tasks; in brackets the printed latency",
        ("link", "K", "method", "tasks", "score", "AAL", "rounds", "latency s", "tokens/s", "passed"),
        [
            (
                *(row.link, "free" if row.window is None else row.window, row.method, row.tasks, row.score),
                *(row.aal.shown(1.0, 2), row.rounds.shown(1.0, 1), f"{row.latency_s.shown(1.0, 2)}{_printed(row)}"),
                *(row.tokens_per_s.shown(1.0, 2), percent(row.passed)),
            )
            for row in found
        ],
    )


def _printed(row: Row) -> str:
    """The paper's latency of that row, with other models and machines, and RTT 50 ms."""
    method = {"SD greedy": PRINTED[0], "SD reject": PRINTED[1], "WISV full": PRINTED[2]}.get(row.method)
    link = LINKS[row.link]
    same = () if method is None or link.rtt_s != 0.05 else printed(method, link.up_bps)
    return next((f" ({one.latency_s:.1f})" for one in same if one.window == row.window), "")
