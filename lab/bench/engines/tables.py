"""The tables of ``outrider bench engines``."""

from collections.abc import Sequence

from cluster.reports.tables import show_table
from lab.bench.engines.comparisons import compared
from lab.bench.harness.mix import KINDS
from lab.bench.harness.samples import ArmFigures, Sample, figures

_COLUMNS = {
    "tokens/s": "tokens_per_s",
    "of one request": "client_tokens_per_s",
    "TTFT ms": "ttft_ms",
    "TPOT ms": "tpot_ms",
    "acceptance": "acceptance",
    "unanswered": "unanswered",
}


def show_served(samples: Sequence[Sample]) -> None:
    found = sorted(figures(samples), key=lambda one: one.clients)
    title = "service, output tokens per second: median [smallest-largest] over turns"
    rows = [(one.arm, one.clients, *(_shown(one, name) for name in _COLUMNS.values())) for one in found]
    show_table(title, ("arm", "clients", *_COLUMNS), rows)
    _show_kinds(found)
    for arm, failure in {one.arm: one.failure for one in found if one.failure}.items():
        print(f"  FAILED {arm}: {failure}")


def _show_kinds(found: Sequence[ArmFigures]) -> None:
    kinds = [kind for kind in KINDS if any(_of(kind) in one.values for one in found)]
    if kinds:
        rows = [(one.arm, one.clients, *(_shown(one, _of(kind)) for kind in kinds)) for one in found]
        title = "tokens per second of one request, by kind of prompt: median [smallest-largest] over turns"
        show_table(title, ("arm", "clients", *kinds), rows)


def _of(kind: str) -> str:
    return f"{kind}_tokens_per_s"


def show_compared(samples: Sequence[Sample], windows: Sequence[int | None]) -> None:
    """Print the service's aims: tokens per second of one arm over those of another, turn by turn."""
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
