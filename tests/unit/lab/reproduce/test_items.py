"""The commands behind the papers' page: short forms run, and give the figures that are kept."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.cli import main
from lab.reproduce.items import ITEMS
from lab.reproduce.results import read
from tests.unit.doc_text import words_without_help


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.paper} {item.name}")
def test_its_command_exists(item: object) -> None:
    (found,) = [one for one in ITEMS if one is item]
    first = next((at for at, word in enumerate(found.command) if word.startswith("--")), len(found.command))
    options = [word for word in found.command[first:] if word.startswith("--")]
    assert words_without_help(" ".join(("outrider", *found.command[:first], *options))) == []


def test_names_are_unique() -> None:
    names = [(item.paper, item.name) for item in ITEMS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "name", ["table I", *(pytest.param(one, marks=pytest.mark.long) for one in ("tables 2 and 3", "figures 4 to 6"))]
)
def test_the_short_form_gives_the_figures_that_are_kept(name: str, tmp_path: Path) -> None:
    (item,) = [one for one in ITEMS if one.name == name and one.paper != "wisp"]
    assert main(item.arguments(tmp_path, *item.quick)) == 0
    (figures,) = item.runs(json.loads((tmp_path / item.record).read_text(encoding="utf-8")))
    kept = read(item.paper)[item.name]["figures"]
    assert {key: len(values) for key, values in figures.items()} == {key: len(values) for key, values in kept.items()}
    if not item.is_random:
        assert figures == {key: pytest.approx([value["mean"] for value in values]) for key, values in kept.items()}


@pytest.mark.long
def test_the_short_form_of_wisps_tables_gives_figures_that_are_kept(tmp_path: Path) -> None:
    """Of one seed and one speed, so their number is another."""
    (item,) = [one for one in ITEMS if (one.paper, one.name) == ("wisp", "table 2")]
    file = tmp_path / "record.json"
    assert main(["bench", "paper", "wisp", "--parts", "qwen3-32b", "--quick", "--json", str(file)]) == 0
    (figures,) = item.runs(json.loads(file.read_text(encoding="utf-8")))
    kept = read(item.paper)[item.name]["figures"]
    assert set(figures) >= {name for name in kept if name.startswith("qwen3-32b, 8/s")}
    assert all(values[0] > 0.0 for name, values in figures.items() if "refused" not in name)


def test_what_is_not_an_item_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "dssd", "table 9"]) == 2
    assert "ITEM needs one of 'tables 2 and 3', found 'table 9'" in capsys.readouterr().err


def _figures(name: str, record: Mapping[str, Any]) -> dict[str, list[float]]:
    (item,) = [one for one in ITEMS if (one.paper, one.name) == ("wisp", name)]
    (found,) = item.runs(record)
    return found


def test_a_predictors_recall_and_false_positives_are_of_its_confusion() -> None:
    confusion = {"true_rejected": 60, "false_accepted": 20, "false_rejected": 10, "true_accepted": 90}
    family = {"family": "MLP", "test": {"confusion": confusion, "auc": 0.8}, "latency": {"median_ms": 0.01}}
    parts = {"train": {"tokens": 30, "accepted": 15}, "test": {"tokens": 10, "accepted": 5}}
    trends = [{"correlation": 0.5}, {"correlation": None}]
    record = {"report": {"parts": parts, "trends": trends, "families": [family]}}
    assert _figures("tables 4 and 8 to 11, greedy", record) == {
        "tokens": [40],
        "accepted": [50.0],
        "correlations": [0.5],
        "MLP": [0.9, 0.25, 0.8],
        "confusion, MLP": [60, 20, 10, 90],
        "ms, MLP": [0.01],
    }


def test_ended_drafts_are_compared_with_whole_ones_of_as_many_clients() -> None:
    def one(arm: str, clients: int, accepted: float, speed: float) -> dict[str, object]:
        return {"arm": arm, "clients": clients, "accepted_fraction": accepted, "tokens_per_s": speed}

    cells = [one("window 8", 2, 0.2, 2.0), one("stop before", 2, 0.6, 2.5), one("window 8", 4, 0.2, 4.0)]
    record = {"figures": [*cells, one("stop before", 4, 0.5, 3.0)]}
    found = _figures("tables 5 and 6", record)
    assert found["accepted, 2"] == [0.2, 0.6]
    assert (found["gain, 2"], found["gain, 4"]) == ([25.0], [-25.0])


def test_what_a_command_writes_is_in_a_folder_of_its_own(tmp_path: Path) -> None:
    for item in ITEMS:
        words = item.arguments(tmp_path, "--seed", "1")
        assert [word for word in words if word.startswith(str(tmp_path))]
        assert not [word for word in words if "{" in word]
