"""Dashboards: drawn from what is kept beside them, complete, readable, and in Prometheus's language."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.messages import DrafterId
from cluster.monitoring.files import FOLDER
from lab.dashboards.board import Board, Panel, Shape
from lab.dashboards.drawn import BOARDS, drawn
from serve_app.metrics import ALL
from tests.unit.cluster.monitoring.promtool import as_rules, expressions, filled_in, names_in, promtool

ON_NO_PANEL = {"outrider_key_tokens_total": "a bill is asked for by hand: docs/how-to/keys.md"}  # metric: why
PANELS = [pytest.param(panel, id=f"{board.name}: {panel.title}") for board in BOARDS for panel in board.panels]
WRITTEN = {board.name: json.loads((FOLDER / f"dashboards/{board.name}.json").read_text("utf-8")) for board in BOARDS}


def test_files_are_what_the_drawing_makes() -> None:
    """If not: `make dashboards`."""
    for path, text in drawn().items():
        assert (FOLDER / path).read_text(encoding="utf-8") == text, path
    assert {file.stem for file in (FOLDER / "dashboards").iterdir()} == {board.name for board in BOARDS}


def test_every_metric_is_on_a_panel_or_it_is_said_why_not() -> None:
    shown = {name for expr in expressions() for name in names_in(expr)}
    assert {metric.name for metric in ALL} - shown == set(ON_NO_PANEL)
    assert shown <= {metric.name for metric in ALL}, "nothing is drawn that is not exported"


def test_every_expression_parses(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(as_rules([filled_in(expr) for expr in expressions()]), encoding="utf-8")
    promtool("check", "rules", "rules.yaml", folder=tmp_path)


def test_a_coordinator_without_any_prompt_in_cache_has_a_line(tmp_path: Path) -> None:
    (panel,) = (panel for board in BOARDS for panel in board.panels if panel.title == "Prompt tokens in cache")
    name = "ray_outrider_prefix_cache_tokens_total"
    counted = {'WorkerId="a", outcome="hit"': 30, 'WorkerId="a", outcome="miss"': 30, 'WorkerId="b", outcome="miss"': 9}
    case = {
        "interval": "30s",
        "input_series": [
            {"series": f'{name}{{ray_io_cluster="c", {labels}}}', "values": f"0+{each}x20"}
            for labels, each in counted.items()
        ],
        "promql_expr_test": [
            {
                "expr": filled_in(panel.queries[0].expr),
                "eval_time": "8m",
                "exp_samples": [
                    {"labels": f'{{WorkerId="{each}"}}', "value": share} for each, share in (("a", 0.5), ("b", 0.0))
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"tests": [case]}, width=100_000), encoding="utf-8")
    promtool("test", "rules", "test.yaml", folder=tmp_path)


def test_a_chosen_groups_devices_are_not_those_of_a_group_whose_name_goes_on() -> None:
    (panel,) = (panel for board in BOARDS for panel in board.panels if panel.title == "Worst devices")
    for query in panel.queries:
        (pattern,) = re.findall(r'drafter=~"(.+?)"', query.expr.replace("$group", "edge"))
        assert re.fullmatch(pattern, DrafterId("edge", 12).actor_name)
        assert not re.fullmatch(pattern, DrafterId("edge-2", 0).actor_name)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows_in_which_unit(panel: Panel) -> None:
    assert panel.text.endswith(".")
    assert panel.title
    assert panel.unit in {"short", "s", "percentunit", "reqps", "bps", "decbits", "count:tok", "count:tok/s"}
    assert (panel.warn is None) is (panel.alarm is None)
    assert all(query.legend for query in panel.queries) or len(panel.queries) == 1
    assert panel.to is None or panel.to in {board.name for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_board_has_what_its_expressions_ask_for(board: Board) -> None:
    written: dict[str, Any] = WRITTEN[board.name]
    offered = {variable["name"] for variable in written["templating"]["list"]}
    assert offered == {"datasource", *board.variables}
    for panel in board.panels:
        for query in panel.queries:
            narrowed = {name for name in ("cluster", "coordinator", "class", "group") if f"${name}" in query.expr}
            assert narrowed, f"{panel.title} is narrowed to a cluster at least"
            assert narrowed <= offered
    assert board.variables == tuple(
        variable
        for variable in board.variables
        if any(f"${variable}" in query.expr for panel in board.panels for query in panel.queries)
    ), "nothing can be chosen that changes nothing"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_what_grafana_reads_is_whole(board: Board) -> None:
    written = WRITTEN[board.name]
    assert (written["uid"], written["title"]) == (f"outrider-{board.name}", board.title)
    assert written["links"][0]["tags"] == written["tags"] == ["outrider"]
    panels = [panel for panel in written["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in panels] == [panel.title for panel in board.panels]
    assert len({panel["id"] for panel in written["panels"]}) == len(written["panels"])
    for panel, drawn_panel in zip(panels, board.panels, strict=True):
        assert [target["expr"] for target in panel["targets"]] == [query.expr for query in drawn_panel.queries]
        assert panel["description"] == drawn_panel.text
        assert panel["fieldConfig"]["defaults"]["unit"] == drawn_panel.unit
        if drawn_panel.shape is Shape.NUMBER:
            (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
            assert mapping["options"] == {"match": "null+nan", "result": {"text": "no traffic", "color": "text"}}
        if drawn_panel.shape is Shape.TABLE:
            assert all(target["instant"] and target["format"] == "table" for target in panel["targets"])
            joined, _, named = (step["options"] for step in panel["transformations"])
            assert all(f"by ({joined['byField']})" in query.expr for query in drawn_panel.queries)
            columns = [f"Value #{target['refId']}" for target in panel["targets"]]
            assert named["renameByName"] == dict(
                zip(columns, (query.legend for query in drawn_panel.queries), strict=True)
            )
            units = {one["matcher"]["options"]: one["properties"] for one in panel["fieldConfig"]["overrides"]}
            assert units == {query.legend: [{"id": "unit", "value": query.unit}] for query in drawn_panel.queries}
        if drawn_panel.warn is not None:
            assert len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) >= 2
        if drawn_panel.to is not None:
            assert panel["links"][0]["url"].startswith(f"/d/outrider-{drawn_panel.to}?")
    assert max(Counter((p["gridPos"]["x"], p["gridPos"]["y"]) for p in written["panels"]).values()) == 1
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_panels_that_an_operator_is_sent_to_are_there() -> None:
    """``overview, "First token by phase"``: the beginning of a title on that board."""
    page = (FOLDER.parents[1] / "docs/how-to/monitoring.md").read_text("utf-8")
    cells = [line.split(" | ")[1] for line in page.splitlines() if re.match(r"\| .*\? \|", line)]
    found = [(board, title) for cell in cells for board, title in re.findall(r'(\w+), "(.+?)"', cell)]
    assert len(found) > 5
    boards = {board.name: [panel.title for panel in board.panels] for board in BOARDS}
    for name, title in found:
        assert any(panel.startswith(title) for panel in boards[name]), (name, title)
