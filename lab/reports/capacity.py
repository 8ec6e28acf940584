"""Tables of ``outrider simulate capacity``: our results beside the published ones."""

from cluster.reports.tables import show_table
from lab.reports.columns import percent
from lab.simulation.experiment import CapacityFigures, Case, Measure
from lab.simulation.published import (
    CAPACITY_32B,
    GOODPUT_TOKENS_PER_S,
    SPEEDS_TOKENS_PER_S,
    VIOLATION_RATES,
)
from lab.simulation.settings import PRODUCT, Settings, Variant


def show_capacity(figures: CapacityFigures) -> None:
    _show_headlines(figures)
    for case in figures.cases:
        print(f"\n{case.name}: {case.source}\n  {_lengths(case.settings)}")
        _show_capacities(case, figures)
    if figures.cases:
        _show_goodput(figures)
    if figures.mixed:
        _show_mixed(figures)
    if figures.loads:
        _show_loads(figures)
        _show_table_1(figures)


def _show_headlines(figures: CapacityFigures) -> None:
    """Print the service's results with its own admission: fastest speed of each case, and all classes mixed."""
    rows = []
    for case in figures.cases:
        top = case.speeds_tokens_per_s[-1]
        ratios = [
            figures.multiple(case, PRODUCT, over, top) for over in (Variant.CENTRALIZED, Variant.SLED, Variant.KV)
        ]
        rows.append((case.name, f"{top:g}/s", figures.devices(case, PRODUCT, top), *map(_times, ratios)))
    for name, results in figures.mixed.items():
        ours, fcfs = (next(one.devices for one in results if one.variant is it) for it in (PRODUCT, Variant.KV))
        rows.append((name, "mixed", ours, "-", "-", _times(ours / fcfs if fcfs else None)))
    header = ("costs", "promised", "devices", "x centralized", "x sled", "x fcfs, kept kv")
    show_table(f"the service: {PRODUCT}, with admission", header, rows)


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _show_capacities(case: Case, figures: CapacityFigures) -> None:
    """Print WISP Table 2: devices at each speed, published figures in brackets."""
    top = case.speeds_tokens_per_s[-1]
    rows = []
    for variant in case.variants:
        last = figures.found[case.name, variant, top]
        counts = [
            _beside(case, variant, speed, figures.devices(case, variant, speed)) for speed in case.speeds_tokens_per_s
        ]
        ratios = [figures.multiple(case, variant, over, top) for over in (Variant.CENTRALIZED, Variant.SLED)]
        rates = last.violation_rates
        rows.append(
            (
                variant,
                *counts,
                *map(_times, ratios),
                last.draft,
                f"{last.goodput_tokens_per_s:.0f}",
                *(percent(rates[measure.value]) for measure in (Measure.RESPONSE, Measure.ROUND)),
                last.evictions,
            )
        )
    speeds = [f"at {speed:g}/s" for speed in case.speeds_tokens_per_s]
    header = ("system", *speeds, "x centr.", "x sled", "draft", "tokens/s", "late resp.", "late rounds", "evicted")
    show_table("devices served at the promised speed (published); columns from `x` on: at the fastest", header, rows)


def _show_goodput(figures: CapacityFigures) -> None:
    """Print WISP Table 3, at each capacity at the fastest speed: the paper does not state the load it measured at."""
    case = figures.cases[0]
    top = case.speeds_tokens_per_s[-1]
    rows = [
        (
            variant,
            f"{figures.found[case.name, variant, top].goodput_tokens_per_s:.1f}",
            GOODPUT_TOKENS_PER_S.get(variant.value, "-"),
        )
        for variant in case.variants
    ]
    show_table(f"goodput, tokens/s, at the capacity for {top:g} tokens/s", ("system", "ours", "Table 3"), rows)


def _show_mixed(figures: CapacityFigures) -> None:
    rows = []
    for limit, results in figures.mixed.items():
        fcfs = next(one.devices for one in results if one.variant is Variant.KV)
        for one in results:
            over = f"{one.devices / fcfs:.2f}" if fcfs else "-"
            name = "fcfs, kept kv" if one.variant is Variant.KV else one.variant
            rows.append((limit, name, one.devices, over, f"{one.goodput_tokens_per_s:.0f}", one.draft))
    note = "The class that fares worst counts."
    header = ("costs and memory", "system", "devices", "x fcfs", "tokens/s", "draft")
    show_table("devices served, classes of 2, 4, 6 and 8 tokens/s mixed", header, rows, note)


def _show_loads(figures: CapacityFigures) -> None:
    """Print WISP Figure 7: violations by class over the number of devices, per response and per round."""
    rows = []
    for load in figures.loads:
        responses = [percent(one.response_violation_rate) for one in load.by_class]
        rounds = [percent(one.round_violation_rate) for one in load.by_class]
        rows.append((load.variant, load.devices, *responses, *rounds, f"{load.goodput_tokens_per_s:.0f}"))
    speeds = [f"{speed:g}/s" for speed in SPEEDS_TOKENS_PER_S]
    header = ("system", "devices", *(f"resp. {speed}" for speed in speeds), *(f"round {speed}" for speed in speeds))
    show_table("violations with mixed classes, no memory limit", (*header, "tokens/s"), rows)


def _show_table_1(figures: CapacityFigures) -> None:
    nearest = figures.nearest_load(VIOLATION_RATES["fcfs"])
    if nearest is None:
        return
    ours = {load.variant: load for load in figures.loads if load.devices == nearest.devices}
    lines = []
    for name, variant in (
        ("fcfs", Variant.KV),
        ("wisp", Variant.WISP),
        ("wisp, fair", Variant.WISP_FAIR),
        ("slo_aware", Variant.SCHEDULER),
    ):
        rates = [percent(one.round_violation_rate) for one in ours[variant].by_class]
        published = [percent(rate) for rate in VIOLATION_RATES.get(name, ())] or ["-"] * len(rates)
        lines.append((name, *(f"{rate} ({theirs})" for rate, theirs in zip(rates, published, strict=True))))
    title = (
        f"Table 1: rounds slower than promised (published), at the {nearest.devices} devices nearest to its fcfs row"
    )
    speeds = (f"{speed:g}/s" for speed in SPEEDS_TOKENS_PER_S)
    show_table(title, ("policy", *speeds), lines)


def _beside(case: Case, variant: Variant, speed: float, count: int) -> str:
    if not case.name.startswith("table 12") or variant.value not in CAPACITY_32B:
        return str(count)
    return f"{count} ({CAPACITY_32B[variant.value][SPEEDS_TOKENS_PER_S.index(speed)]})"


def _lengths(settings: Settings) -> str:
    return (
        f"prompt {settings.prompt_tokens}, output {settings.output_tokens} (+-{100 * settings.length_spread:.0f} %),"
        f" {settings.draft_tokens_per_s:g} draft tokens/s, window {settings.window},"
        f" token acceptance {settings.token_acceptance:g} (accepted fraction {settings.accepted_fraction:.2f}),"
        f" RTT {1e3 * settings.rtt_s:g} ms, eps {settings.epsilon:g}, KV of {settings.kv_tokens} tokens"
    )
