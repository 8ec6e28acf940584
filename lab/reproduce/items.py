"""Items of the papers: the command that repeats each, and what the papers' page shows of the command's figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from lab.bench.papers.wisp import figures as wisp
from lab.bench.papers.wisp.tables import SEEDS

_FOLDER = "{folder}"
Record = Mapping[str, Any]  # what the command writes as JSON
Figures = dict[str, list[float]]  # by name, in the order in which the page shows them


@dataclass(frozen=True, slots=True)
class Item:
    """One item, or several of one run.

    Attributes:
        command: arguments of ``outrider``; ``--seed N`` is added if it draws anything, and ``--json FILE`` unless it
            writes into ``{folder}``, which each run has of its own.
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
    record: str = "record.json"  # the file of that folder with the figures

    def arguments(self, folder: Path, *more: str) -> list[str]:
        """Return the command's arguments; what it writes is in ``folder``, where ``record`` is."""
        words = [word.replace(_FOLDER, str(folder)) for word in self.command]
        own = any(_FOLDER in word for word in self.command)
        return [*words, *more, *(() if own else ("--json", str(folder / self.record)))]

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


def _predictors(record: Record) -> Figures:
    report = record["report"]
    parts, families = report["parts"].values(), {one["family"]: one for one in report["families"]}
    tokens = sum(part["tokens"] for part in parts)
    figures = {
        "tokens": [tokens],
        "accepted": [100.0 * sum(part["accepted"] for part in parts) / tokens],
        "correlations": [one["correlation"] for one in report["trends"] if one["correlation"] is not None],
    }
    for name, family in families.items():
        counts = family["test"]["confusion"]
        rejected = counts["true_rejected"] + counts["false_accepted"]
        accepted = counts["true_accepted"] + counts["false_rejected"]
        figures |= {
            f"{name}": [counts["true_accepted"] / accepted, counts["false_accepted"] / rejected, family["test"]["auc"]],
            f"confusion, {name}": list(counts.values()),
            f"ms, {name}": [family["latency"]["median_ms"]],
        }
    return figures


def _profile(record: Record) -> Figures:
    fit, slopes = record["figures"], ("token", "interaction", "cached_token", "batch")
    return {
        "r2": [fit["test_r2"]],
        "mae": [1e3 * fit["test_mae_s"]],
        "mape": [100.0 * fit["test_mape"]],
        "coefficients": [1e6 * record[f"seconds_per_{name}"] for name in slopes],
    }


def _stops(record: Record) -> Figures:
    """Of each number of clients: accepted share of whole drafts and of ended ones, and tokens/s gained, in percent."""
    figures: Figures = {}
    for clients in dict.fromkeys(one["clients"] for one in record["figures"]):
        arms = [[one for one in record["figures"] if (one["arm"], one["clients"]) == (arm, clients)] for arm in _STOPS]
        whole, ended = (mean(one["tokens_per_s"] for one in found) for found in arms)
        figures[f"accepted, {clients}"] = [mean(one["accepted_fraction"] for one in found) for found in arms]
        figures[f"gain, {clients}"] = [100.0 * (ended / whole - 1.0)]
    return figures


def _head(record: Record) -> Figures:
    report = record["report"]
    return {
        "labels": [report[name] for name in ("answers", "scored", "mismatches", "critical")],
        "auc": [one["validation_auc"] for one in report["fits"] if one["validation_auc"] is not None],
        "threshold": [report["threshold"]],
    }


_LEADS = {f"{model}, {speed}/s, lead": ".2f" for model in ("qwen3-32b", "qwen3-14b") for speed in (2, 4, 6, 8)}
_WISP: Sequence[tuple[str, tuple[str, ...], Callable[[Record], Sequence[Figures]], Mapping[str, str]]] = (
    ("settings", ("settings",), wisp.settings, {"": ".2f"}),
    ("table 2", ("qwen3-32b", "qwen3-14b"), wisp.table_2, _LEADS),
    ("table 3", ("qwen3-32b",), wisp.table_3, {}),
    ("table 1 and figure 8", ("loads",), wisp.table_1, {}),
    ("figure 7", ("mixed", "mixed-limited"), wisp.figure_7, {"free, lead": ".2f", "limited, lead": ".2f"}),
)
_STOPS = ("window 8", "stop before")
_PREDICTOR = ("train", "predictor", "--target", "embedded", "--drafter", "embedded", "--max-new-tokens", "192")
_FEW = ("--most-prompts", "24", "--max-new-tokens", "32", "--least-tokens", "50", "--trials", "1", "--epochs", "5")
_PACE = ("drafters.0.count=4", "drafters.0.emulated_step_ms=70", "verifiers.emulated_pass_ms=400")
_CLIENTS = ("--clients", "2", "4", "8", "16", "--tokens", "60", "--responses", "1")
_HEAD = ("--threads", "1", "--out", f"{_FOLDER}/head.safetensors")
_SHORT = ("--prompts", "1", "--tokens", "8")
ITEMS: Sequence[Item] = (
    Item("dssd", "tables 2 and 3", ("bench", "paper", "dssd"), _SHORT, _dssd, {"": ".2f", "acceptance": ".3f"}),
    Item("tslt", "figures 4 to 6", ("bench", "paper", "tslt"), _SHORT, _tslt, {"": ".2f", "figure 4": ".3f"}),
    *(
        Item(
            "wisp",
            f"tables 4 and 8 to 11, {rule}",
            (*_PREDICTOR, "--rule", rule, "--threads", "1", "--out", f"{_FOLDER}/{rule}.safetensors"),
            (*_FEW, "--latency-calls", "20"),
            _predictors,
            {"": ".2f", "tokens": ".0f", "accepted": ".0f", "confusion": ".0f", "ms": ".3f"},
            record=f"{rule}.report.json",
        )
        for rule in ("greedy", "ratio")
    ),
    Item(
        "wisp",
        "tables 5 and 6",
        ("bench", "stops", "--arms", *_STOPS, *(word for pace in _PACE for word in ("--set", pace)), *_CLIENTS),
        ("--clients", "2", "--tokens", "8", "--responses", "1"),
        _stops,
        {"": ".2f", "gain": ".0f"},
        is_random=False,
    ),
    Item(
        "wisp",
        "tables 7 and 12",
        ("profile", "--clock", "cpu", "--out", f"{_FOLDER}/profile.json"),
        ("--quick",),
        _profile,
        {"": ".2f", "r2": ".4f"},
        record="profile.json",
    ),
    Item(
        "wisv",
        "decision head",
        ("train", "head", "--target", "embedded", "--drafter", "embedded", "--tasks", "embedded", *_HEAD),
        ("--most-training-tasks", "8", "--max-new-tokens", "48", "--least-mismatches", "8", "--epochs", "2"),
        _head,
        {"": ".2f", "labels": ".0f"},
        record="head.report.json",
    ),
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
