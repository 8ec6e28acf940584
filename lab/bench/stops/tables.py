"""Tables of the results, and their plot."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from cluster.reports.tables import show_table
from lab.bench.stops.bound import Waste
from lab.bench.stops.measure import Figures
from lab.reports.columns import percent
from lab.reports.plots import COLOURS, describe, figure, save

_HEADER = (
    *("clients, arm", "tokens/s", "over best window", "tokens a round", "ordered", "sent", "accepted"),
    *("drafting s/s", "wasted s/s", "wasted ms/token", "round p50 s"),
)


def show(found: Sequence[Figures]) -> None:
    """Print means over repeats, against the best fixed window with as many clients."""
    rows = []
    for clients in dict.fromkeys(one.clients for one in found):
        mine = [one for one in found if one.clients == clients]
        by_arm = {arm: [one for one in mine if one.arm == arm] for arm in dict.fromkeys(one.arm for one in mine)}
        fixed = [mean(one.tokens_per_s for one in runs) for arm, runs in by_arm.items() if is_fixed(arm)]
        for arm, runs in by_arm.items():
            speed = mean(one.tokens_per_s for one in runs)
            rows.append(
                (
                    f"{clients}, {arm}",
                    f"{speed:.2f}",
                    f"{speed / max(fixed):.3f}" if fixed else "",
                    f"{mean(one.tokens_per_round for one in runs):.2f}",
                    f"{mean(one.ordered_tokens for one in runs):.2f}",
                    f"{mean(one.sent_tokens for one in runs):.2f}",
                    percent(mean(one.accepted_fraction for one in runs)),
                    f"{mean(one.drafting_s_per_s for one in runs):.3f}",
                    f"{mean(one.wasted_s_per_s for one in runs):.3f}",
                    f"{1e3 * mean(one.wasted_s_per_token for one in runs):.1f}",
                    f"{mean(one.round_p50_s for one in runs):.3f}",
                )
            )
    show_table("Ways to end a draft", _HEADER, rows)


def show_bound(found: Sequence[Waste], rounds: int, window: int) -> None:
    rows = [
        (
            f"{one.threshold:g}",
            percent(one.false_alarms),
            f"{one.bound:.3f}",
            f"{one.wasted:.3f}",
            f"{one.accepted:.3f}",
        )
        for one in found
    ]
    header = ("flagged below", "first rejections not flagged", "bound of waste", "wasted", "accepted")
    show_table(f"Tokens a round, of drafts of {window}", header, rows, note=f"{rounds} rounds; WISP eq. 31 and 26")


def is_fixed(arm: str) -> bool:
    return arm == "target alone" or arm.startswith("window ")


def plot_waste(file: Path, found: Sequence[Figures]) -> None:
    """A panel for each number of clients, a point for each arm."""
    loads = list(dict.fromkeys(one.clients for one in found))
    drawn = figure(6.5 * len(loads), 4.8)
    for axes, clients in zip(drawn.subplots(1, len(loads), squeeze=False)[0], loads, strict=True):
        mine = [one for one in found if one.clients == clients]
        for number, arm in enumerate(dict.fromkeys(one.arm for one in mine)):
            runs = [one for one in mine if one.arm == arm]
            wasted_ms, speed = (
                1e3 * mean(one.wasted_s_per_token for one in runs),
                mean(one.tokens_per_s for one in runs),
            )
            axes.scatter([wasted_ms], [speed], 30, COLOURS[number % len(COLOURS)])
            axes.annotate(arm, (wasted_ms, speed), xytext=(5, 4), textcoords="offset points", fontsize=8)
        describe(axes, f"{clients} at once", "wasted drafting, ms per committed token", "tokens per second")
        axes.margins(x=0.2)
    save(drawn, file)
