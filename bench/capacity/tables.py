"""Tables of ``outrider bench capacity``."""

from collections.abc import Sequence

from bench.capacity.figures import Figures
from cluster.reports.tables import percent, show_table
from outrider.simulation.results import ClassResults


def show_figures(figures: Sequence[Figures]) -> None:
    """Every policy and number of users in turn."""
    show_table(
        "Late rounds, responses and devices; goodput in tokens/s; times in ms",
        (
            *("users", "policy", "rounds", "(queue", "compute)", "responses", "devices", "goodput", "round p50", "p99"),
            *("first token p50", "p99", "blocks/batch", "busy", "batches ended by"),
        ),
        [
            (
                one.users,
                one.policy,
                percent(one.promised.round_violation_rate),
                percent(one.promised.late_queue_rounds / max(one.promised.rounds, 1)),
                percent(one.promised.late_compute_rounds / max(one.promised.rounds, 1)),
                percent(one.promised.response_violation_rate),
                percent(one.promised.device_violation_rate),
                f"{one.goodput_tokens_per_s:.1f}",
                f"{one.round_times.p50_s * 1e3:.0f}",
                f"{one.round_times.p99_s * 1e3:.0f}",
                f"{one.first_token_times.p50_s * 1e3:.0f}",
                f"{one.first_token_times.p99_s * 1e3:.0f}",
                f"{one.mean_batch_blocks:.1f}",
                percent(one.busy_share),
                " ".join(f"{reason} {count}" for reason, count in one.stop_reasons),
            )
            for one in figures
        ],
    )
    show_table(
        "By promised speed",
        (
            *("users", "policy", "promised", "achieved", "late rounds", "(queue", "compute)"),
            *("late responses", "late devices"),
        ),
        [_class_row(one, of_class) for one in figures for of_class in one.by_class],
    )
    for one in figures:
        if one.off_record or one.faults:
            print(f"{one.policy} with {one.users} users: {one.off_record} responses off record, {one.faults} faults")


def _class_row(one: Figures, of_class: ClassResults) -> tuple[object, ...]:
    achieved = of_class.achieved_tokens_per_s
    return (
        one.users,
        one.policy,
        f"{of_class.slo.tokens_per_s:g}/s",
        "-" if achieved is None else f"{achieved:.2f}/s",
        percent(of_class.round_violation_rate),
        percent(of_class.late_queue_rounds / max(of_class.rounds, 1)),
        percent(of_class.late_compute_rounds / max(of_class.rounds, 1)),
        f"{of_class.late_responses} of {of_class.responses}",
        f"{of_class.late_devices} of {of_class.devices}",
    )
