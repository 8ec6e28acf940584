"""Tables of ``outrider bench capacity``."""

from collections.abc import Sequence

from cluster.reports.tables import percent, show_table
from lab.bench.capacity.figures import Figures
from lab.simulation.results import ClassResults


def show_figures(figures: Sequence[Figures]) -> None:
    show_table(
        "Goodput in tokens/s and kept responses, with 95 % intervals (stretches of time redrawn)",
        (
            *("load", "policy", "ended", "goodput", "against fcfs", "each repeat"),
            *("kept/s", "kept of asked, %", "refused"),
        ),
        [_rates_row(one) for one in figures],
    )
    show_table(
        "Late rounds, responses and devices; times in ms",
        (
            *("load", "policy", "rounds", "(queue", "compute)", "responses", "devices", "round p50", "p99"),
            *("first token p50", "p99", "blocks/batch", "busy", "slowness", "batches ended by"),
        ),
        [_lateness_row(one) for one in figures],
    )
    show_table(
        "By promised speed",
        (
            *("load", "policy", "promised", "achieved", "late rounds", "(queue", "compute)"),
            *("kept or on time", "late", "refused", "late devices"),
        ),
        [_class_row(one, of_class) for one in figures for of_class in one.by_class],
    )
    for one in figures:
        if one.off_record or one.faults:
            print(f"{one.policy}, {one.load}: {one.off_record} responses off record, {one.faults} faults")


def _rates_row(one: Figures) -> tuple[object, ...]:
    rates = one.rates
    return (
        one.load,
        one.policy,
        " ".join(map(str, one.ended)),
        rates.goodput.shown(digits=1),
        "-" if rates.against is None else str(rates.against),
        " ".join(f"{each:.3f}" for each in rates.each_against) or "-",
        rates.kept_per_s.shown(digits=2),
        rates.kept_share.shown(100.0, digits=1),
        one.promised.refused,
    )


def _lateness_row(one: Figures) -> tuple[object, ...]:
    return (
        one.load,
        one.policy,
        percent(one.promised.round_violation_rate),
        percent(one.promised.late_queue_rounds / max(one.promised.rounds, 1)),
        percent(one.promised.late_compute_rounds / max(one.promised.rounds, 1)),
        percent(one.promised.response_violation_rate),
        percent(one.promised.device_violation_rate),
        f"{one.round_times.p50_s * 1e3:.0f}",
        f"{one.round_times.p99_s * 1e3:.0f}",
        f"{one.first_token_times.p50_s * 1e3:.0f}",
        f"{one.first_token_times.p99_s * 1e3:.0f}",
        f"{one.mean_batch_blocks:.1f}",
        percent(one.busy_share),
        "-" if one.slowness is None else f"{one.slowness:.3f}",
        " ".join(f"{reason} {count}" for reason, count in one.stop_reasons),
    )


def _class_row(one: Figures, of_class: ClassResults) -> tuple[object, ...]:
    achieved = of_class.achieved_tokens_per_s
    return (
        one.load,
        one.policy,
        f"{of_class.slo.tokens_per_s:g}/s",
        "-" if achieved is None else f"{achieved:.2f}/s",
        percent(of_class.round_violation_rate),
        percent(of_class.late_queue_rounds / max(of_class.rounds, 1)),
        percent(of_class.late_compute_rounds / max(of_class.rounds, 1)),
        of_class.responses - of_class.late_responses,
        of_class.late_responses,
        of_class.refused,
        f"{of_class.late_devices} of {of_class.devices}",
    )
