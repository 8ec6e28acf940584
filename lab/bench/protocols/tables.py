"""Tables of ``outrider bench protocols``."""

from collections.abc import Sequence
from math import log2

from cluster.reports.tables import show_table
from lab.bench.protocols.bits import GOAL_BITS, Bits
from lab.bench.protocols.figures import Comparison, MethodFigures, plan_name
from lab.bench.protocols.rounds import Levels
from outrider.contracts.exchanged import WireFormat


def show_figures(found: Sequence[MethodFigures]) -> None:
    """Print one table per cell."""
    header = (
        *("method", "drafts", "ms/token charged", "levelled", "wall", "bits up/token", "down/token"),
        *("accepted", "accepted/round", "rounds/token"),
    )
    for cell in dict.fromkeys(one.cell for one in found):
        rows = [
            (
                one.method,
                ", ".join(f"{plan_name(plan)} {share:.0%}" for plan, share in one.plans[:2]),
                one.charged_s.shown(1e3, 1),
                f"{one.levelled_s.mean * 1e3:.1f}",
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


def show_levels(usual: Levels) -> None:
    """Print usual times of the parts of a round."""
    show_table("medians, ms: drafter", ("plan", "ms"), [(plan_name(p), _number(s)) for p, s in usual.draft_s.items()])
    verify = [
        (drafted, "device" if defers else "target", _number(s))
        for (drafted, defers), s in sorted(usual.verify_s.items())
    ]
    show_table("medians, ms: verifier", ("drafted", "corrections by", "ms"), verify)
    other = [("with a draft" if asked else "without", _number(s)) for asked, s in sorted(usual.other_s.items())]
    show_table("medians, ms: queue and orchestration", ("round", "ms"), other)


def show_comparisons(kind: str, found: Sequence[Comparison]) -> None:
    """Print ``cheapest`` against the best fixed method of each cell."""
    rows = [
        (
            *(one.cell.name, one.best, _number(one.best_s), _number(one.cheapest_s), one.ratio),
            "yes" if one.within_tenth else "NO",
        )
        for one in found
    ]
    show_table(f"cheapest by {kind}", ("cell", "best fixed", "ms/token", "cheapest", "ratio", "within 10 %"), rows)


def show_bits(found: Sequence[Bits], wire: WireFormat) -> None:
    """Print bits per committed token of rounds with a draft, over all links."""
    rows = [
        (
            *(one.method, "0" if one.greedy else "1", *(f"{way.mean:.1f}" for way in (one.up, one.down))),
            *(one.both.shown(digits=1), *(f"{part:.1f}" for part in (one.envelope, one.ids, one.rest))),
            *(f"{one.drafted:.2f}", f"{one.id_limit:.1f}"),
        )
        for one in found
    ]
    header = ("method", "temperature", "up", "down", "both", "= envelope", "+ ids", "+ rest", "drafted", "id limit")
    show_table(f"payload bits per committed token (an id is {log2(wire.vocab_size):.2f} bits)", header, rows)
    for one in found:
        if one.method == "token_ids" and not one.greedy:
            verdict = "under" if one.both.mean < GOAL_BITS else "NOT under"
            print(f"token_ids at temperature 1: {one.both.mean:.1f} bits, {verdict} {GOAL_BITS:g}")


def _number(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"
