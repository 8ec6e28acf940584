"""Cells of WISP's tables: resumed from their file, and what the papers' page shows of them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.bench.papers.wisp import figures
from lab.bench.papers.wisp.provenance import behaviour, provenance
from lab.bench.papers.wisp.record import Record
from lab.bench.papers.wisp.tables import (
    ADMITTING,
    MIXED_SYSTEMS,
    OURS,
    SEEDS,
    TABLE_1,
    TABLE_2,
    Tables,
    case_of,
    key_of,
)
from lab.bench.papers.wisp.tuning import OUR_START
from lab.reproduce.items import ITEMS
from lab.reproduce.results import PAGE, over_own_seeds
from lab.simulation.experiment import Cell
from lab.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from lab.simulation.roofline import MODELS
from lab.simulation.settings import Variant
from outrider.contracts.cost import LinearCostModel
from outrider.scheduling import ledger

CELL = {
    "devices": 100,
    "devices_apart": 110,
    "refused_share": 0.05,
    "goodput_tokens_per_s": 900.0,
    "apart_tokens_per_s": 950.0,
}


def test_a_record_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "cells.json"
    Record(file, "abc").put("a", "1", {"devices": 1})
    again = Record(file, "def")
    assert again.get("a", "1") == {"devices": 1, "commit": "abc"}
    assert again.put("b", "1", {"devices": 2}) == {"devices": 2, "commit": "def"}
    assert again.current == {"a": {"devices": 1, "commit": "abc"}, "b": {"devices": 2, "commit": "def"}}
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4, "a cell is a line"


def test_a_stale_cell_is_not_found_and_gives_way(tmp_path: Path) -> None:
    file = tmp_path / "cells.json"
    Record(file).put("a", "1", {"devices": 1})
    Record(file).put("a b", "1", {"devices": 3})
    again = Record(file)
    assert again.get("a", "2") is None
    assert again.current == {}, "it is shown by nobody"
    again.put("a", "2", {"devices": 2})
    assert set(json.loads(file.read_text(encoding="utf-8"))) == {"a | of 2", "a b | of 1"}


def test_cells_that_are_kept_are_not_run_again(tmp_path: Path) -> None:
    file = tmp_path / "cells.json"
    tables = Tables(Record(file), quick=True, runs=False)
    tables.table_2()
    tables.settings()
    assert not file.exists(), "nothing is to be run"
    kept = Record(file)
    for speeds, seed, memory in (((8.0,), SEEDS[0], True), (SPEEDS_TOKENS_PER_S, SEEDS[1], False)):
        cell = tables.cell("qwen3-32b", OURS, speeds, seed, memory=memory)
        kept.put(key_of("qwen3-32b", OURS.name, speeds, seed, memory=memory), provenance(cell), CELL)
    again = Record(file)
    Tables(again, quick=True, runs=False).table_2()
    assert list(again.current) == [key_of("qwen3-32b", OURS.name, (8.0,), SEEDS[0], memory=True)]
    full = Record(file)
    Tables(full, runs=False).table_2()
    assert full.current == {}, "a short run's cell is not a whole one's"


def test_provenance_follows_settings_and_behaviour(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(case_of("qwen3-32b"), Variant.SCHEDULER, (8.0,))
    before = provenance(cell)
    assert provenance(replace(cell, seed=0)) == before
    others = (replace(cell, seed=1), replace(cell, responses=0.5), replace(cell, tuning=OUR_START))
    assert len({before, *map(provenance, others)}) == 4
    assert behaviour(Variant.SCHEDULER) != behaviour(Variant.WISP)
    behaviour.cache_clear()
    monkeypatch.setattr(ledger, "WIDE_CAP_S", 4.0)  # acts while KV is short only
    assert provenance(cell) != before
    behaviour.cache_clear()


def test_the_page_asks_for_figures_that_there_are() -> None:
    names = [
        *(
            key_of(model, one.name, (speed,), seed, memory=True)
            for model in ("qwen3-32b", "qwen3-14b")
            for one in TABLE_2
            for speed in SPEEDS_TOKENS_PER_S
            for seed in SEEDS
        ),
        *(
            key_of("qwen3-32b", one.name, SPEEDS_TOKENS_PER_S, seed, memory=memory)
            for one in MIXED_SYSTEMS
            for seed in SEEDS
            for memory in (False, True)
        ),
    ]
    cells: dict[str, dict[str, Any]] = dict.fromkeys(names, CELL)
    load = {"late_rounds": [0.0] * 4, "queue": [1] * 4, "compute": [0] * 4}
    cells |= {f"table 1 | {one.name} | seed {seed}": load for one in TABLE_1 for seed in SEEDS}
    cells |= {f"settings | {name}": {"score": 1.0, "printed": 1.0, "tried": []} for name in ("wisp", "ours")}
    there = {(item.name, figure) for item in ITEMS if item.cells for run in item.runs(cells) for figure in run}
    asked = set(re.findall(r"<!-- wisp / ([^/]+) / ([^>]+?) -->", PAGE.read_text(encoding="utf-8")))
    assert asked <= there


def test_the_smaller_model_costs_less_and_leaves_more_memory() -> None:
    small, large = case_of("qwen3-14b"), case_of("qwen3-32b")
    assert large.costs == TABLE_12
    assert isinstance(small.costs, LinearCostModel)
    ratio = MODELS["qwen3-14b"].kv_bytes_per_token / MODELS["qwen3-32b"].kv_bytes_per_token
    assert small.costs.seconds_per_cached_token == pytest.approx(ratio * TABLE_12.seconds_per_cached_token)
    assert 0.3 < small.costs.seconds_per_token / TABLE_12.seconds_per_token < 0.6
    assert small.settings.kv_tokens > 3 * large.settings.kv_tokens
    assert case_of("qwen3-32b", memory=False).settings.kv_tokens > 10**7


def test_each_seed_has_the_figures_of_its_cells() -> None:
    cells = {
        key_of("qwen3-32b", system.name, (speed,), seed, memory=True): CELL | {"devices": 100 + seed}
        for system in TABLE_2
        for speed in SPEEDS_TOKENS_PER_S
        for seed in SEEDS
    }
    del cells[key_of("qwen3-32b", "sled", (2.0,), SEEDS[1], memory=True)]
    runs = figures.table_2(cells)
    place = "qwen3-32b, 2/s"
    assert [run[f"{place}, {OURS.name}"] for run in runs] == [[110.0]] * 3
    assert [f"{place}, sled" in run for run in runs] == [True, False, True]
    assert runs[1][f"{place}, lead"] == [1.0]
    shown = over_own_seeds(runs)
    assert shown[f"{place}, sled"] == [{"mean": 110.0, "half_interval": 0.0, "runs": 2}]
    assert shown[f"{place}, wisp"][0]["runs"] == 3
    assert [run[ADMITTING.name] for run in figures.table_3(cells)] == [[950.0]] * 3, "at the capacity of Table 2"
    assert figures.table_3(cells)[0][OURS.name] == [900.0]
    assert shown[f"{place}, ours, admission, refusals count"][0]["mean"] == 104.0
