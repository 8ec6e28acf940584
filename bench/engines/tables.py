"""The tables of ``outrider bench engines``."""

from collections.abc import Mapping, Sequence

from bench.engines.plan import AloneCell, RoundCell
from bench.engines.rounds import BARE
from bench.harness.samples import Figures, Sample, figures, ratios
from cluster.reports.tables import show_table


def show_rounds(samples: Sequence[Sample[RoundCell]]) -> None:
    """Warm and cold rounds, and which arms failed."""
    found, over = figures(samples), ratios(samples, "ms", BARE)
    for warm, title in ((True, "resident prefix"), (False, "prefix computed first")):
        if any(one.cell.warm is warm for one in found):
            full = f"verification, {title}: milliseconds, median [smallest-largest]"
            _show_rounds(full, [one for one in found if one.cell.warm is warm], over)
    _show_failures(found)


def _show_rounds(title: str, group: Sequence[Figures[RoundCell]], over: Mapping[tuple[RoundCell, str], float]) -> None:
    cells, arms = list(dict.fromkeys(one.cell for one in group)), list(dict.fromkeys(one.arm for one in group))
    shown = {(one.cell, one.arm): str(one.values["ms"]) for one in group if one.values}
    compared = [arm for arm in arms if any(key[1] == arm and key[0] in cells for key in over)]
    rows = [
        (
            *(cell.generations, cell.draft, cell.prefix),
            *(shown.get((cell, arm), "-") for arm in arms),
            *(f"{over[cell, arm]:.3f}" if (cell, arm) in over else "-" for arm in compared),
        )
        for cell in cells
    ]
    show_table(title, ("B", "K", "prefix", *arms, *(f"{arm} / bare" for arm in compared)), rows)
    for arm in compared:
        values = sorted(over[cell, arm] for cell in cells if (cell, arm) in over)
        middle = values[len(values) // 2]
        print(f"  {arm} over {BARE}: median {middle:.3f}, largest {values[-1]:.3f} of {len(values)} cells")


def show_alone(samples: Sequence[Sample[AloneCell]]) -> None:
    """Closed loops of engines alone."""
    found = figures(samples)
    rows = [
        (
            *(one.arm, one.cell.clients, one.cell.window, _shown(one, "tokens_per_s"), _share(one)),
            "-" if "exact" not in one.values else "yes" if one.values["exact"].low else "no",
        )
        for one in found
    ]
    header = ("engine", "clients", "window", "tokens/s", "acceptance", "as recorded")
    show_table("engines alone, drafts at no cost: output tokens per second", header, rows)
    _show_failures(found)


def show_served(samples: Sequence[Sample[int]]) -> None:
    """Services by arm and clients."""
    found = sorted(figures(samples), key=lambda one: one.cell)
    names = ("tokens_per_s", "client_tokens_per_s", "ttft_ms", "tpot_ms")
    rows = [
        (one.arm, one.cell, *(_shown(one, name) for name in names), _share(one), _shown(one, "unanswered"))
        for one in found
    ]
    header = ("arm", "clients", "tokens/s", "of one request", "TTFT ms", "TPOT ms", "acceptance", "unanswered")
    show_table("service, output tokens per second: median [smallest-largest] over repeats", header, rows)
    _show_failures(found)


def _shown(one: Figures[RoundCell] | Figures[AloneCell] | Figures[int], name: str) -> str:
    return str(one.values[name]) if name in one.values else "-"


def _share(one: Figures[AloneCell] | Figures[int]) -> str:
    return f"{one.values['acceptance'].median:.2f}" if "acceptance" in one.values else "-"


def _show_failures(found: Sequence[Figures[RoundCell]] | Sequence[Figures[AloneCell]] | Sequence[Figures[int]]) -> None:
    for arm, failure in {one.arm: one.failure for one in found if one.failure}.items():
        print(f"  FAILED {arm}: {failure}")
