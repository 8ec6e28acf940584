"""Pictures of dashboards: every kind of panel, its units, thresholds and legends, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from cluster.monitoring.files import FOLDER
from lab.bench.pictures.dashboards import colour_of, draw, filled_in, named, with_unit
from outrider.contracts.errors import ParameterError

VARIABLES = {"cluster": ".*", "coordinator": ".*", "class": ".*", "group": ".*", "__rate_interval": "1m"}
STEPS: list[dict[str, Any]] = [
    {"value": None, "color": "red"},
    {"value": 0.5, "color": "yellow"},
    {"value": 0.9, "color": "green"},
]
BOARDS = sorted((FOLDER / "dashboards").iterdir())


def matrix(expr: str) -> list[dict[str, Any]]:
    labels = {"protocol": "dsd", "direction": "up", "le": "8"}
    return [{"metric": labels, "values": [(0.0, "1"), (1.0, "NaN"), (2.0, str(len(expr)))]}]


@pytest.mark.parametrize("board", BOARDS, ids=lambda file: file.stem)
def test_every_shipped_board_is_drawn_whole(board: Path, tmp_path: Path) -> None:
    panels = [panel for panel in json.loads(board.read_text("utf-8"))["panels"] if panel["type"] != "row"]
    asked: list[str] = []

    def ask(expr: str) -> list[dict[str, Any]]:
        asked.append(expr)
        return matrix(expr)

    assert draw(board, tmp_path / "full.png", ask, VARIABLES, "of a test") == len(panels)
    assert len(asked) == sum(len(panel["targets"]) for panel in panels)
    assert not any("$" in expr for expr in asked)
    assert draw(board, tmp_path / "empty.png", lambda _: [], VARIABLES, "of a test") == 0
    full, empty = (imread(tmp_path / f"{name}.png") for name in ("full", "empty"))
    assert full.shape == empty.shape
    assert full.shape[1] > 1000
    assert (full != empty).any()


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="values for cluster"):
        filled_in("sum(a{b=~'$cluster'})", {})
    board = json.loads(BOARDS[0].read_text("utf-8"))
    board["panels"][1]["type"] = "gauge"
    (tmp_path / "board.json").write_text(json.dumps(board), encoding="utf-8")
    with pytest.raises(ParameterError, match=r"timeseries, stat or heatmap.*gauge"):
        draw(tmp_path / "board.json", tmp_path / "board.png", matrix, VARIABLES, "")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.123, "percentunit", "12.3 %"),
        (0.0042, "s", "4.2 ms"),
        (2.5, "s", "2.5 s"),
        (20e6, "bps", "20 Mbit/s"),
        (12.0, "bps", "12 bit/s"),
        (1_500.0, "short", "1.5 k"),
        (0.5, "reqps", "0.5 /s"),
    ],
)
def test_numbers_have_the_panels_units(value: float, unit: str, text: str) -> None:
    assert with_unit(value, unit) == text


def test_a_number_has_the_colour_of_the_threshold_it_has_reached() -> None:
    colours = [colour_of(value, STEPS) for value in (0.4, 0.5, 0.9)]
    assert len(set(colours)) == 3
    assert colour_of(0.89, STEPS) == colours[1]


def test_series_are_called_by_their_labels() -> None:
    assert named("{{group}} {{direction}}", {"group": "edge", "direction": "up"}) == "edge up"
    assert named("p50", {}) == "p50"
