"""Tables of ``outrider bench protocols``."""

from collections.abc import Sequence

from cluster.reports.tables import show_table
from lab.bench.protocols.figures import Comparison, MethodFigures, plan_name


def show_figures(found: Sequence[MethodFigures]) -> None:
    header = (
        *("method", "drafts", "ms/token charged", "wall", "bits up/token", "down/token"),
        *("accepted", "accepted/round", "rounds/token"),
    )
    for cell in dict.fromkeys(one.cell for one in found):
        rows = [
            (
                one.method,
                ", ".join(f"{plan_name(plan)} {share:.0%}" for plan, share in one.plans[:2]),
                one.charged_s.shown(1e3, 1),
                one.wall_s.shown(1e3, 1),
                f"{one.up_bits.mean:.0f}",
                f"{one.down_bits.mean:.0f}",
                "-" if one.accepted_fraction is None else f"{one.accepted_fraction.mean:.2f}",
                "-" if one.accepted_len is None else f"{one.accepted_len.mean:.2f}",
                f"{one.rounds.mean:.2f}",
            )
            for one in found
            if one.cell == cell
        ]
        show_table(f"{cell.name} ({rows and found[0].responses} responses per method)", header, rows)


def show_comparisons(found: Sequence[Comparison]) -> None:
    rows = [
        (
            *(one.cell.name, one.best, _number(one.best_s), _number(one.cheapest_s), one.ratio),
            "yes" if one.within_tenth else "NO",
        )
        for one in found
    ]
    show_table(
        "cheapest by charged seconds", ("cell", "best fixed", "ms/token", "cheapest", "ratio", "within 10 %"), rows
    )


def _number(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"
