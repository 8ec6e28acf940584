"""Figures over seeds, and the page that is written from them."""

from dataclasses import replace

import pytest

from lab.reproduce.items import ITEMS, Item
from lab.reproduce.results import PAGE, over_seeds, page_with, read

ITEM = Item("wisp", "table 2", ("bench",), (), lambda _: {}, {"": ".0f", "share": ".2f"})
FIGURES = {"sled": [{"mean": 70.4}, {"mean": 37.0}], "share of late": [{"mean": 0.1}]}
KEPT = {"wisp": {"table 2": {"run": {"commit": "abc"}, "figures": FIGURES}}}
CELL = "| a | <!-- wisp / table 2 / sled -->1 / 2<!-- --> and <!-- wisp / table 2 / share of late -->0<!-- --> |"


def test_means_and_intervals_are_over_seeds() -> None:
    found = over_seeds([{"a": [1.0, 5.0]}, {"a": [2.0, 5.0]}, {"a": [3.0, 5.0]}])
    assert [value["mean"] for value in found["a"]] == [2.0, 5.0]
    first, second = (value["half_interval"] for value in found["a"])
    assert first == pytest.approx(4.303 / 3**0.5)  # standard deviation 1, Student's t with two degrees of freedom
    assert second == 0.0


def test_one_seed_has_no_interval() -> None:
    assert over_seeds([{"a": [1.5]}]) == {"a": [{"mean": 1.5, "half_interval": None}]}


def test_seeds_with_other_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="the same figures of every seed"):
        over_seeds([{"a": [1.0]}, {"b": [1.0]}])


def test_cells_are_written_anew_and_nothing_else() -> None:
    page = page_with(CELL, KEPT, [ITEM])
    assert page == CELL.replace("-->1 / 2<", "-->70 / 37<").replace("-->0<", "-->0.10<")
    assert page_with(page, KEPT, [ITEM]) == page


@pytest.mark.parametrize(
    ("run", "seeds", "marks"),
    [
        ({"commit": "abc"}, 3, ""),
        ({"commit": "abc"}, 1, "¹"),
        ({"commit": "abc-dirty"}, 3, "†"),
        ({"commit": None}, 1, "¹†"),
        ({"commit": "abc", "cells": ["abc", "abc-dirty"]}, 1, "¹†"),
        ({"commit": "abc", "cells": ["def"]}, 2, ""),
    ],
)
def test_one_seed_and_a_tree_that_is_no_commits_are_marked(run: dict[str, object], seeds: int, marks: str) -> None:
    kept = {"wisp": {"table 2": {"run": run, "figures": {"sled": [{"mean": 3.0, "runs": seeds}]}}}}
    page = page_with("<!-- wisp / table 2 / sled -->1<!-- -->", kept, [ITEM])
    assert page == f"<!-- wisp / table 2 / sled -->3{marks}<!-- -->"


def test_a_cell_of_cells_that_are_not_run_says_so() -> None:
    item = replace(ITEM, cells="cells.json")
    for kept in ({}, {"wisp": {"table 2": {"run": {"commit": "abc"}, "figures": {}}}}):
        page = page_with("<!-- wisp / table 2 / sled -->1¹<!-- -->", kept, [item])
        assert page == "<!-- wisp / table 2 / sled -->not run<!-- -->"
    with pytest.raises(ValueError, match="table 9 / sled"):
        page_with("<!-- wisp / table 9 / sled -->1<!-- -->", KEPT, [item])


def test_a_cell_without_a_result_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a result for wisp / table 2 / centralized, found none"):
        page_with("<!-- wisp / table 2 / centralized -->1<!-- -->", KEPT, [ITEM])


def test_the_page_is_what_the_results_say() -> None:
    kept = {paper: read(paper) for paper in {item.paper for item in ITEMS}}
    page = PAGE.read_text(encoding="utf-8")
    assert page_with(page, kept, ITEMS) == page, "run `outrider reproduce`, or write the page anew"
    for paper, found in kept.items():
        for name, result in found.items():
            assert {"command", "date", "machine", "versions", "commit"} <= set(result["run"]), (paper, name)
            assert result["seeds"], (paper, name)
