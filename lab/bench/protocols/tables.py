"""Tables of ``outrider bench protocols``."""

from collections.abc import Sequence

from lab.bench.protocols.figures import Comparison, MethodFigures, plan_name
from lab.reports.columns import Columns, show_columns

_METHODS: Columns[MethodFigures] = (
    ("method", lambda one: one.method),
    ("drafts", lambda one: ", ".join(f"{plan_name(plan)} {share:.0%}" for plan, share in one.plans[:2])),
    ("ms/token charged", lambda one: one.charged_s.shown(1e3, 1)),
    ("wall", lambda one: one.wall_s.shown(1e3, 1)),
    ("bits up/token", lambda one: f"{one.up_bits.mean:.0f}"),
    ("down/token", lambda one: f"{one.down_bits.mean:.0f}"),
    ("accepted", lambda one: "-" if one.accepted_fraction is None else f"{one.accepted_fraction.mean:.2f}"),
    ("accepted/round", lambda one: "-" if one.accepted_len is None else f"{one.accepted_len.mean:.2f}"),
    ("rounds/token", lambda one: f"{one.rounds.mean:.2f}"),
)
_COMPARISONS: Columns[Comparison] = (
    ("cell", lambda one: one.cell.name),
    ("best fixed", lambda one: one.best),
    ("ms/token", lambda one: f"{one.best_s * 1e3:.1f}"),
    ("cheapest", lambda one: f"{one.cheapest_s * 1e3:.1f}"),
    ("ratio", lambda one: one.ratio),
    ("within 10 %", lambda one: "yes" if one.within_tenth else "NO"),
)


def show_figures(found: Sequence[MethodFigures]) -> None:
    for cell in dict.fromkeys(one.cell for one in found):
        rows = [one for one in found if one.cell == cell]
        show_columns(f"{cell.name} ({rows and found[0].responses} responses per method)", _METHODS, rows)


def show_comparisons(found: Sequence[Comparison]) -> None:
    show_columns("cheapest by charged seconds", _COMPARISONS, found)
