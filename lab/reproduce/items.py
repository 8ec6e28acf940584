"""Items of the papers: the command that repeats each, and what the papers' page shows of the command's figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]  # what the command writes as JSON
Figures = dict[str, list[float]]  # by name, in the order in which the page shows them


@dataclass(frozen=True, slots=True)
class Item:
    """One item, or several of one run.

    Attributes:
        command: arguments of ``outrider``; ``--json FILE`` is added, and ``--seed N`` if it draws anything.
        quick: further arguments of a run that only shows that the command works.
        formats: digits of each figure on the page, as ``format`` takes them.
    """

    paper: str
    name: str
    command: tuple[str, ...]
    quick: tuple[str, ...]
    figures: Callable[[Record], Figures]
    formats: Mapping[str, str]
    is_random: bool = True


def _dssd(record: Record) -> Figures:
    found = record["top-k 10"]["results"]
    figures = {"acceptance": [record["top-k 10"]["acceptance"]["ratio"]["mean"]]}
    for table, printed in (("table 2", "comm_s"), ("table 3", "speed_up_table_3")):
        for name, protocol in (("dsd", "dsd"), ("dssd", "dssd"), ("ids", "ours: token_ids")):
            rows = [one for one in found if one["protocol"] == protocol and one["row"][printed] is not None]
            figures[f"{table}, {name}"] = [one["speed_up"] for one in rows]
    return figures


def _tslt(record: Record) -> Figures:
    accepted = [one for one in record["protocols"] if one["protocol"].startswith(("dsd", "tslt"))]
    figures = {"figure 4, one candidate": [one["acceptance"]["mean"] for one in accepted if one["protocol"] != "dssd"]}
    names = {"single": "figure 5, chain", "two distinct": "figure 6, tree", "shared noise": "figure 5, ids"}
    for one in record["speed_ups"]:  # the last of a scheme keeps the fewest tokens
        if one["scheme"] in names:
            figures[names[one["scheme"]]] = [one["speed_ups"][0], one["speed_ups"][-1]]
    return figures


def _wisv(record: Record) -> Figures:
    errors = record["largest_errors"]
    return {
        "largest error": [100.0 * errors[name] for name in ("sd_greedy", "sd_reject", "wisv_full")],
        "step": [1e3 * record["fitted_step_s"]],
    }


def _capacities(record: Record) -> Figures:
    found: Figures = {}
    for one in record["capacity"]:
        found.setdefault(f"{one['costs_name']}, {one['variant']}", []).append(float(one["devices"]))
        if one["speeds_tokens_per_s"][0] == _FASTEST and one["costs_name"] == "table 12":
            found[f"goodput, {one['variant']}"] = [one["goodput_tokens_per_s"]]
    return found


def _mixed(record: Record) -> Figures:
    by_variant = {one["variant"]: float(one["devices"]) for cells in record["mixed"].values() for one in cells}
    return {f"devices, {variant}": [devices] for variant, devices in by_variant.items()}


_FASTEST = 8.0  # tokens/s, of Table 3
_SHORT = ("--prompts", "1", "--tokens", "8")
ITEMS: Sequence[Item] = (
    Item("dssd", "tables 2 and 3", ("bench", "paper", "dssd"), _SHORT, _dssd, {"": ".2f", "acceptance": ".3f"}),
    Item("tslt", "figures 4 to 6", ("bench", "paper", "tslt"), _SHORT, _tslt, {"": ".2f", "figure 4": ".3f"}),
    Item("wisv", "table I", ("bench", "paper", "wisv"), (), _wisv, {"": ".1f", "step": ".2f"}, is_random=False),
    Item(
        "wisp",
        "tables 2 and 3",
        ("simulate", "capacity", "--parts", "table 12", "table 12, memory free"),
        ("--quick",),
        _capacities,
        {"": ".0f"},
    ),
    Item("wisp", "figure 7", ("simulate", "capacity", "--parts", "mixed"), ("--quick",), _mixed, {"": ".0f"}),
)
