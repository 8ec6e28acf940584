"""The commands behind the papers' page: short forms run, and give the figures that are kept."""

import json
from pathlib import Path

import pytest

from cluster.cli import main
from lab.reproduce.items import ITEMS
from lab.reproduce.results import read
from tests.unit.doc_text import words_without_help


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.paper} {item.name}")
def test_its_command_exists(item: object) -> None:
    (found,) = [one for one in ITEMS if one is item]
    assert words_without_help(" ".join(("outrider", *(word for word in found.command if " " not in word)))) == []


def test_names_are_unique() -> None:
    names = [(item.paper, item.name) for item in ITEMS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "name", ["table I", *(pytest.param(one, marks=pytest.mark.long) for one in ("tables 2 and 3", "figures 4 to 6"))]
)
def test_the_short_form_gives_the_figures_that_are_kept(name: str, tmp_path: Path) -> None:
    (item,) = [one for one in ITEMS if one.name == name and one.paper != "wisp"]
    file = tmp_path / "record.json"
    assert main([*item.command, *item.quick, "--json", str(file)]) == 0
    (figures,) = item.runs(json.loads(file.read_text(encoding="utf-8")))
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
