"""Tables of ``outrider simulate stops``."""

from collections.abc import Sequence
from statistics import median

from cluster.reports.tables import show_table
from lab.reports.columns import percent
from lab.simulation.experiment import CostCase
from lab.simulation.stop_map import FIXED, STOPPING, DraftEnding, PlaceResult

_NOISE = 0.03  # relative, of a capacity or a goodput
_PLACE = ("costs", "AUC", "promise", "acceptance", "draft/s")
_BASES: tuple[tuple[str, Sequence[DraftEnding]], ...] = (
    ("the best window", (DraftEnding.BEST,)),
    ("the best window or none", FIXED),
    ("the whole window", (DraftEnding.WINDOW,)),
)


def show_stops(cases: Sequence[CostCase], found: Sequence[PlaceResult]) -> None:
    for case in cases:
        print(f"{case.name}: {case.source}")
    _show_capacities(found)
    for full in (False, True):
        _show_load(found, full=full)
    _show_balance(found)


def _place(one: PlaceResult) -> tuple[str, ...]:
    return one.case, *(f"{number:g}" for number in (one.auc, one.promise, one.acceptance, one.draft_tokens_per_s))


def _show_capacities(found: Sequence[PlaceResult]) -> None:
    rows = []
    for one in found:
        counts = {of.ending: f"{of.devices}{'+' if of.bounded else ''}" for of in one.endings}
        counts[DraftEnding.BEST] += f" ({one.of(DraftEnding.BEST).window}, {one.closed_form})"
        rows.append((*_place(one), f"{one.tokens_per_s:.2f}", *counts.values()))
    header = (
        *_PLACE,
        "tokens/s",
        *(f"{ending} (its, the closed form's)" if ending is DraftEnding.BEST else ending for ending in DraftEnding),
    )
    note = "Promise: share of the speed of one device alone with its best chain. Best window: of those above 0."
    show_table("devices with their promise kept", header, rows, note)


def _show_load(found: Sequence[PlaceResult], *, full: bool) -> None:
    rows = []
    for one in found:
        runs = [one.load(ending, full=full) for ending in DraftEnding]
        rows.append(
            (
                *_place(one),
                runs[0].devices,
                *(
                    f"{run.goodput_tokens_per_s:.0f} {percent(run.late_share)} {1e3 * run.round_p50_s:.0f}"
                    f" {1e3 * run.round_p99_s:.0f} {run.sent_tokens:.1f} {run.accepted_fraction:.2f}"
                    for run in runs
                ),
            )
        )
    devices = "all devices that the best window serves" if full else "a quarter of those"
    title = f"{devices}: tokens/s, late responses, round p50 and p99 in ms, tokens sent, accepted fraction"
    show_table(title, (*_PLACE, "devices", *DraftEnding), rows)


def _show_balance(found: Sequence[PlaceResult]) -> None:
    rows = []
    for name, base in _BASES:
        for ending in STOPPING:
            measures: dict[str, Sequence[float | None]] = {
                "capacity": [one.over(ending, base) for one in found],
                "tokens/s, light": [one.goodput_over(ending, base, full=False) for one in found],
                "tokens/s, full": [one.goodput_over(ending, base, full=True) for one in found],
            }
            for measure, ratios in measures.items():
                shares = [share for share in ratios if share is not None]
                if shares:
                    rows.append((f"{ending} over {name}", measure, *_balance(shares)))
    header = ("", "of", "least", "median", "most", "better", "as good", "worse")
    show_table(f"over all places; within {percent(_NOISE)} is as good", header, rows)


def _balance(shares: Sequence[float]) -> tuple[object, ...]:
    better, worse = sum(share > 1.0 + _NOISE for share in shares), sum(share < 1.0 - _NOISE for share in shares)
    spread = (f"{share:.2f}" for share in (min(shares), median(shares), max(shares)))
    return (*spread, better, len(shares) - better - worse, worse)
