"""The tables of ``outrider bench engines``."""

from collections.abc import Sequence

from bench.engines.comparisons import compared
from bench.harness.samples import ArmFigures, Sample, figures
from cluster.reports.tables import show_table

_COLUMNS = {
    "tokens/s": "tokens_per_s",
    "of one request": "client_tokens_per_s",
    "TTFT ms": "ttft_ms",
    "TPOT ms": "tpot_ms",
    "acceptance": "acceptance",
    "unanswered": "unanswered",
}


def show_served(samples: Sequence[Sample]) -> None:
    """Services by arm and clients, and which arms failed."""
    found = sorted(figures(samples), key=lambda one: one.clients)
    title = "service, output tokens per second: median [smallest-largest] over turns"
    rows = [(one.arm, one.clients, *(_shown(one, name) for name in _COLUMNS.values())) for one in found]
    show_table(title, ("arm", "clients", *_COLUMNS), rows)
    for arm, failure in {one.arm: one.failure for one in found if one.failure}.items():
        print(f"  FAILED {arm}: {failure}")


def show_compared(samples: Sequence[Sample], windows: Sequence[int | None]) -> None:
    """What the service's aims are about: tokens per second of one arm over those of another, turn by turn."""
    found = compared(samples, windows)
    rows = [(one.arm, one.rival, one.clients, one.turns, one.ratio) for one in found]
    show_table(
        "output tokens per second over those of the best rival [95 %]",
        ("arm", "rival", "clients", "turns", "ratio"),
        rows,
    )


def _shown(one: ArmFigures, name: str) -> str:
    if name not in one.values:
        return "-"
    return f"{one.values[name].median:.2f}" if name == "acceptance" else str(one.values[name])
