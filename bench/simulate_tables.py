"""The tables of ``outrider simulate capacity``: ours beside the published."""

from collections.abc import Mapping, Sequence

from bench.simulate_cases import Case
from bench.simulate_explained import Found, devices, multiple, table_1
from bench.simulate_output import percent, show_table
from bench.simulate_sensitivity import RUNGS, SWEEPS, Sensitivity
from outrider.simulation.experiment import CellResult, LoadResult, Measure
from outrider.simulation.published import (
    AIMS,
    CAPACITY_32B,
    GOODPUT_TOKENS_PER_S,
    MIXED_AIM_OVER_FCFS,
    SPEEDS_TOKENS_PER_S,
    VIOLATION_RATES,
)
from outrider.simulation.settings import Rung

_AIMED = {"chains": Rung.CHAINS, "trees": Rung.TREES}
_BASES = {"centralized": Rung.CENTRALIZED, "sled": Rung.SLED}


def show_capacities(case: Case, found: Found) -> None:
    """WISP Table 2: devices at each speed; published figures in brackets where there are any."""
    top = case.speeds_tokens_per_s[-1]
    rows = []
    for rung in case.rungs:
        last = found[case.name, rung, top]
        counts = [_beside(case, rung, speed, devices(found, case, rung, speed)) for speed in case.speeds_tokens_per_s]
        ratios = [multiple(found, case, rung, over, top) for over in (Rung.CENTRALIZED, Rung.SLED)]
        rates = last.violation_rates
        rows.append(
            (
                rung,
                *counts,
                *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
                last.draft,
                f"{last.goodput_tokens_per_s:.0f}",
                *(percent(rates[measure.value]) for measure in (Measure.RESPONSE, Measure.ROUND)),
                last.evictions,
            )
        )
    speeds = [f"at {speed:g}/s" for speed in case.speeds_tokens_per_s]
    header = ("system", *speeds, "x centr.", "x sled", "draft", "tokens/s", "late resp.", "late rounds", "evicted")
    show_table("devices served at the promised speed (published); from `x` on at the fastest", header, rows)


def show_aims(case: Case, found: Found) -> None:
    """What was aimed at with Table 12, and what came out."""
    if not case.name.startswith("table 12"):
        return
    rows = []
    for (name, base), aim in AIMS.items():
        ours = multiple(found, case, _AIMED[name], _BASES[base], 8.0)
        shown = "-" if ours is None else f"{ours:.2f}"
        rows.append(
            (f"{name} over {base}", f">= {aim:g}", shown, "met" if ours is not None and ours >= aim else "missed")
        )
    show_table("aims at 8 tokens/s", ("", "aim", "found", ""), rows)


def show_goodput(case: Case, found: Found) -> None:
    """WISP Table 3, at the capacities at the fastest speed: the paper does not say at which load it measured."""
    top = case.speeds_tokens_per_s[-1]
    rows = [
        (rung, f"{found[case.name, rung, top].goodput_tokens_per_s:.1f}", GOODPUT_TOKENS_PER_S.get(rung.value, "-"))
        for rung in case.rungs
    ]
    show_table(f"goodput, tokens/s, at the capacity for {top:g} tokens/s", ("system", "ours", "Table 3"), rows)


def show_mixed(mixed: Mapping[str, Sequence[CellResult]]) -> None:
    """Capacity with all classes at once."""
    rows = []
    for limit, results in mixed.items():
        fcfs = next(one.devices for one in results if one.rung is Rung.KV)
        for one in results:
            over = f"{one.devices / fcfs:.2f}" if fcfs else "-"
            name = "fcfs, kept kv" if one.rung is Rung.KV else one.rung
            rows.append((limit, name, one.devices, over, f"{one.goodput_tokens_per_s:.0f}", one.draft))
    note = f"Aim: {MIXED_AIM_OVER_FCFS:g} times first come first served. The class that fares worst counts."
    header = ("KV memory", "system", "devices", "x fcfs", "tokens/s", "draft")
    show_table("devices served, classes of 2, 4, 6 and 8 tokens/s mixed", header, rows, note)


def show_loads(loads: Sequence[LoadResult]) -> None:
    """WISP Figure 7 and Table 1: violations by class over the number of devices, per response and per round."""
    rows = []
    for load in loads:
        responses = [percent(one.response_violation_rate) for one in load.by_class]
        rounds = [percent(one.round_violation_rate) for one in load.by_class]
        rows.append((load.rung, load.devices, *responses, *rounds, f"{load.goodput_tokens_per_s:.0f}"))
    speeds = [f"{speed:g}/s" for speed in SPEEDS_TOKENS_PER_S]
    header = ("system", "devices", *(f"resp. {speed}" for speed in speeds), *(f"round {speed}" for speed in speeds))
    show_table("violations with mixed classes, no memory limit", (*header, "tokens/s"), rows)
    nearest = table_1(loads, VIOLATION_RATES["fcfs"])
    if nearest is None:
        return
    ours = {load.rung: load for load in loads if load.devices == nearest.devices}
    lines = []
    for name, rung in (("fcfs", Rung.KV), ("wisp", Rung.WISP), ("slo_aware", Rung.SCHEDULER)):
        rates = [percent(one.round_violation_rate) for one in ours[rung].by_class]
        published = [percent(rate) for rate in VIOLATION_RATES.get(name, ())] or ["-"] * len(rates)
        lines.append((name, *(f"{rate} ({theirs})" for rate, theirs in zip(rates, published, strict=True))))
    title = (
        f"Table 1: rounds slower than promised (published), at the {nearest.devices} devices nearest to its fcfs row"
    )
    show_table(title, ("policy", *speeds), lines)


def show_sensitivity(points: Sequence[Sensitivity]) -> None:
    """Devices served at 8 tokens/s by what is changed."""
    for setting in SWEEPS:
        values = list(dict.fromkeys(point.value for point in points if point.setting == setting))
        if not values:
            continue
        rows = [(f"{value:g}", *(_at(points, setting, value, rung) for rung in RUNGS)) for value in values]
        show_table(f"devices served at 8 tokens/s by {setting}", (setting, *RUNGS), rows)


def _at(points: Sequence[Sensitivity], setting: str, value: float, rung: Rung) -> str:
    point = next(one for one in points if (one.setting, one.value, one.rung) == (setting, value, rung))
    return f"{point.devices} ({point.draft})"


def _beside(case: Case, rung: Rung, speed: float, count: int) -> str:
    if not case.name.startswith("table 12") or rung.value not in CAPACITY_32B:
        return str(count)
    return f"{count} ({CAPACITY_32B[rung.value][SPEEDS_TOKENS_PER_S.index(speed)]})"
