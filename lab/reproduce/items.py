"""Items of the papers: the command that repeats each, and what the papers' page shows of the command's figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.bench.papers.wisp import figures as wisp
from lab.bench.papers.wisp.tables import SEEDS

Record = Mapping[str, Any]  # what the command writes as JSON
Figures = dict[str, list[float]]  # by name, in the order in which the page shows them


@dataclass(frozen=True, slots=True)
class Item:
    """One item, or several of one run.

    Attributes:
        command: arguments of ``outrider``; ``--json FILE`` is added, and ``--seed N`` if it draws anything.
        quick: further arguments of a run that only shows that the command works.
        figures: of one run, or, where ``cells`` is set, of each seed.
        cells: file beside the results in which the command keeps its cells, and runs its own seeds; the page says
            so where a figure is not run yet. None runs one seed.
        formats: digits of each figure on the page, as ``format`` takes them.
        seeds: that are run; those of cells are the command's own.
    """

    paper: str
    name: str
    command: tuple[str, ...]
    quick: tuple[str, ...]
    figures: Callable[[Record], Figures | Sequence[Figures]]
    formats: Mapping[str, str]
    is_random: bool = True
    cells: str | None = None
    seeds: tuple[int, ...] = (0, 1, 2)

    def runs(self, record: Record) -> Sequence[Figures]:
        """Return the figures of each run in a record."""
        found = self.figures(record)
        return [found] if isinstance(found, dict) else found

    def commits(self, record: Record) -> list[str | None]:
        """Return the commits at which a record's cells were run."""
        return list(dict.fromkeys(one["commit"] for one in record.values() if "commit" in one))


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


_LEADS = {f"{model}, {speed}/s, lead": ".2f" for model in ("qwen3-32b", "qwen3-14b") for speed in (2, 4, 6, 8)}
_WISP: Sequence[tuple[str, tuple[str, ...], Callable[[Record], Sequence[Figures]], Mapping[str, str]]] = (
    ("settings", ("settings",), wisp.settings, {"": ".2f"}),
    ("table 2", ("qwen3-32b", "qwen3-14b"), wisp.table_2, _LEADS),
    ("table 3", ("qwen3-32b",), wisp.table_3, {}),
    ("table 1 and figure 8", ("loads",), wisp.table_1, {}),
    ("figure 7", ("mixed", "mixed-limited"), wisp.figure_7, {"free, lead": ".2f", "limited, lead": ".2f"}),
)
_SHORT = ("--prompts", "1", "--tokens", "8")
ITEMS: Sequence[Item] = (
    Item("dssd", "tables 2 and 3", ("bench", "paper", "dssd"), _SHORT, _dssd, {"": ".2f", "acceptance": ".3f"}),
    Item("tslt", "figures 4 to 6", ("bench", "paper", "tslt"), _SHORT, _tslt, {"": ".2f", "figure 4": ".3f"}),
    Item("wisv", "table I", ("bench", "paper", "wisv"), (), _wisv, {"": ".1f", "step": ".2f"}, is_random=False),
    *(
        Item(
            "wisp",
            name,
            ("bench", "paper", "wisp", "--parts", *parts),
            ("--quick",),
            figures,
            {"": ".0f", **formats},
            cells="wisp_cells.json",
            seeds=SEEDS,
        )
        for name, parts, figures, formats in _WISP
    ),
)
