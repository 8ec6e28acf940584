"""Table of scaling by promised load and by requests: promises kept, and cost."""

from collections.abc import Sequence

from cluster.reports.tables import percent, show_table
from lab.simulation.fleet.scaling import BY_REQUESTS, PROMISE, ScalingResult, cost_at

_HEADER = ("by", "target", "promises kept", "late", "refused", "best effort ended", "verifier hours", "most", "started")


def show_scaling(results: Sequence[ScalingResult]) -> None:
    """Print each run, and the cost of scaling by requests where it keeps as many promises as ours does."""
    rows = []
    for one in results:
        promised = [traffic for traffic in one.found.traffic if traffic.tokens_per_s]
        others = [traffic for traffic in one.found.traffic if not traffic.tokens_per_s]
        rows.append(
            (
                one.by,
                f"{one.target:g}",
                percent(one.kept),
                f"{sum(traffic.late for traffic in promised):,}",
                f"{sum(traffic.refused for traffic in promised):,}",
                f"{sum(traffic.kept for traffic in others):,}",
                f"{one.verifier_h:.3f}",
                f"{one.found.most_verifiers}",
                f"{one.found.verifiers_started}",
            )
        )
    show_table("promises kept, and verifier hours", _HEADER, rows)
    theirs = [one for one in results if one.by == BY_REQUESTS]
    for ours in (one for one in results if one.by == PROMISE):
        hours = cost_at(theirs, ours.kept)
        if hours is None:
            print(f"by promise {ours.target:g}: no tested target by requests keeps {percent(ours.kept)}")
        else:
            saved = percent(1.0 - ours.verifier_h / hours)
            fewer = f"{saved} fewer verifier hours than by requests ({hours:.3f})"
            print(f"by promise {ours.target:g}: {fewer} for as many promises kept")
