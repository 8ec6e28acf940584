"""The table of ``outrider bench engines``."""

from collections.abc import Sequence

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
    title = "service, output tokens per second: median [smallest-largest] over repeats"
    rows = [(one.arm, one.clients, *(_shown(one, name) for name in _COLUMNS.values())) for one in found]
    show_table(title, ("arm", "clients", *_COLUMNS), rows)
    for arm, failure in {one.arm: one.failure for one in found if one.failure}.items():
        print(f"  FAILED {arm}: {failure}")


def _shown(one: ArmFigures, name: str) -> str:
    if name not in one.values:
        return "-"
    return f"{one.values[name].median:.2f}" if name == "acceptance" else str(one.values[name])
