"""Tables of a simulated fleet's results."""

from collections.abc import Sequence

from cluster.reports.tables import show_table
from lab.reports.columns import Columns, ms, percent, show_columns
from lab.simulation.fleet.results import FleetResults, TrafficResults

_TRAFFIC: Columns[TrafficResults] = (
    ("traffic", lambda one: one.name),
    ("class", lambda one: one.slo),
    ("promised", lambda one: f"{one.tokens_per_s:g}"),
    ("asked", lambda one: f"{one.asked:,}"),
    ("kept", lambda one: f"{one.kept:,}"),
    ("late", lambda one: f"{one.late:,}"),
    ("refused", lambda one: f"{one.refused:,}"),
    ("unfinished", lambda one: f"{one.unfinished:,}"),
    ("first token p50", lambda one: ms(one.first_token_p50_s)),
    ("p99", lambda one: ms(one.first_token_p99_s)),
    ("tokens/s", lambda one: f"{one.goodput_tokens_per_s:,.0f}"),
    ("kept tokens/s", lambda one: f"{one.kept_goodput_tokens_per_s:,.0f}"),
    ("prefix hits", lambda one: percent(one.hit_share)),
)
_REPLICAS = ("of verifiers", "least", "median", "mean", "most")


def show_fleet(found: FleetResults, note: str, wall_s: float, cpu_s: float, peak_mib: float) -> None:
    """Print results by traffic, balance of the verifiers, losses, and the cost of the simulation."""
    show_columns("responses by traffic", _TRAFFIC, found.traffic)
    replicas = found.replicas
    show_table(
        "balance of the verifiers",
        _REPLICAS,
        [
            ("busy", *(percent(value) for value in spread([one.busy_share for one in replicas]))),
            ("coordinator's core", *(percent(value) for value in spread([one.coordinator_share for one in replicas]))),
            ("responses ended", *(f"{value:.0f}" for value in spread([one.responses for one in replicas]))),
            ("evictions", *(f"{value:.0f}" for value in spread([one.evictions for one in replicas]))),
        ],
        note,
    )
    print(
        f"{found.verifiers_lost:,} verifiers lost, {found.responses_resumed:,} responses resumed; "
        f"{found.drafters_lost:,} drafters left, {found.drafts_lost:,} drafts with them; {found.retries:,} retries"
    )
    print(
        f"{found.goodput_tokens_per_s:,.0f} tokens/s, {percent(found.hit_share)} prefix hits, "
        f"{found.blocks_per_step:.1f} blocks a step, rounds {1e3 * found.round_p50_s:.0f} ms (p99 "
        f"{1e3 * found.round_p99_s:.0f}), {found.most_active:,} responses at once, "
        f"{found.drafters_used:,} drafters used"
    )
    each_s, each_cpu_s = found.rounds / max(wall_s, 1e-9), found.rounds / max(cpu_s, 1e-9)
    print(
        f"simulated {found.rounds:,} rounds in {wall_s:.0f} s ({cpu_s:.0f} s of CPU): {each_s:,.0f} rounds/s, "
        f"{each_cpu_s:,.0f} per second of CPU; {peak_mib:,.0f} MiB peak"
    )


def spread(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Minimum, median, mean and maximum of at least one value."""
    ordered = sorted(values)
    return ordered[0], ordered[len(ordered) // 2], sum(ordered) / len(ordered), ordered[-1]
