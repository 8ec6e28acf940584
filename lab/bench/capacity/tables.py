"""Tables of ``outrider bench capacity``."""

from collections.abc import Sequence

from cluster.reports.tables import percent
from lab.bench.capacity.figures import Figures
from lab.reports.columns import Columns, decimals, show_columns
from lab.simulation.results import ClassResults

_LOAD: Columns[Figures] = (("load", lambda one: one.load), ("policy", lambda one: one.policy))
_RATES: Columns[Figures] = (
    *_LOAD,
    ("ended", lambda one: " ".join(map(str, one.ended))),
    ("goodput", lambda one: one.rates.goodput.shown(digits=1)),
    ("against fcfs", lambda one: one.rates.against or "-"),
    ("each repeat", lambda one: " ".join(f"{each:.3f}" for each in one.rates.each_against) or "-"),
    ("kept/s", lambda one: one.rates.kept_per_s.shown(digits=2)),
    ("kept of asked, %", lambda one: one.rates.kept_share.shown(100.0, digits=1)),
    ("refused", lambda one: one.promised.refused),
)
_LATENESS: Columns[Figures] = (
    *_LOAD,
    ("rounds", lambda one: percent(one.promised.round_violation_rate)),
    ("(queue", lambda one: percent(one.promised.late_queue_rounds / max(one.promised.rounds, 1))),
    ("compute)", lambda one: percent(one.promised.late_compute_rounds / max(one.promised.rounds, 1))),
    ("responses", lambda one: percent(one.promised.response_violation_rate)),
    ("devices", lambda one: percent(one.promised.device_violation_rate)),
    ("round p50", lambda one: f"{one.round_times.p50_s * 1e3:.0f}"),
    ("p99", lambda one: f"{one.round_times.p99_s * 1e3:.0f}"),
    ("first token p50", lambda one: f"{one.first_token_times.p50_s * 1e3:.0f}"),
    ("p99", lambda one: f"{one.first_token_times.p99_s * 1e3:.0f}"),
    ("blocks/batch", lambda one: f"{one.mean_batch_blocks:.1f}"),
    ("busy", lambda one: percent(one.busy_share)),
    ("slowness", lambda one: decimals(one.slowness, 3)),
    ("batches ended by", lambda one: " ".join(f"{reason} {count}" for reason, count in one.stop_reasons)),
)
_BY_CLASS: Columns[tuple[Figures, ClassResults]] = (
    ("load", lambda row: row[0].load),
    ("policy", lambda row: row[0].policy),
    ("promised", lambda row: f"{row[1].slo.tokens_per_s:g}/s"),
    ("achieved", lambda row: "-" if (speed := row[1].achieved_tokens_per_s) is None else f"{speed:.2f}/s"),
    ("late rounds", lambda row: percent(row[1].round_violation_rate)),
    ("(queue", lambda row: percent(row[1].late_queue_rounds / max(row[1].rounds, 1))),
    ("compute)", lambda row: percent(row[1].late_compute_rounds / max(row[1].rounds, 1))),
    ("kept or on time", lambda row: row[1].responses - row[1].late_responses),
    ("late", lambda row: row[1].late_responses),
    ("refused", lambda row: row[1].refused),
    ("late devices", lambda row: f"{row[1].late_devices} of {row[1].devices}"),
)


def show_figures(figures: Sequence[Figures]) -> None:
    show_columns(
        "Goodput in tokens/s and kept responses, with 95 % intervals (stretches of time redrawn)", _RATES, figures
    )
    show_columns("Late rounds, responses and devices; times in ms", _LATENESS, figures)
    by_class = [(one, of_class) for one in figures for of_class in one.by_class]
    show_columns("By promised speed", _BY_CLASS, by_class)
    for one in figures:
        if one.off_record or one.faults:
            print(f"{one.policy}, {one.load}: {one.off_record} responses off record, {one.faults} faults")
