"""Cells of WISP's tables: resumed from their file, and what the papers' page shows of them."""

from pathlib import Path

import pytest

from lab.bench.papers.wisp import figures
from lab.bench.papers.wisp.record import Record
from lab.bench.papers.wisp.tables import ADMITTING, OURS, SEEDS, TABLE_2, Tables, case_of, key_of
from lab.reproduce.results import over_own_seeds
from lab.simulation.published import SPEEDS_TOKENS_PER_S, TABLE_12
from lab.simulation.roofline import MODELS
from outrider.contracts.cost import LinearCostModel

CELL = {
    "devices": 100,
    "devices_apart": 110,
    "refused_share": 0.05,
    "goodput_tokens_per_s": 900.0,
    "apart_tokens_per_s": 950.0,
}


def test_a_record_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "cells.json"
    Record(file).put("a", {"devices": 1})
    again = Record(file)
    assert again["a"] == {"devices": 1}
    again.put("b", {"devices": 2})
    assert Record(file).all == {"a": {"devices": 1}, "b": {"devices": 2}}
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4, "a cell is a line"


def test_cells_that_are_kept_are_not_run_again() -> None:
    record = Record(None)
    for system in TABLE_2:
        record.put(key_of("qwen3-32b", system.name, (8.0,), 0, memory=True), CELL)
    before = dict(record.all)
    tables = Tables(record, quick=True)
    for name in ("wisp", "ours"):
        for label in ("start", "recall 0.9", "window 8"):
            record.put(f"search | {name} | {label} | 8 | seed 10", CELL)
    tables.search()
    tables.table_2()
    assert {key: found for key, found in record.all.items() if key in before} == before


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
    del cells[key_of("qwen3-32b", "sled", (2.0,), 1, memory=True)]
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
    assert shown[f"{place}, ours, admission, refusals count"][0]["mean"] == 101.0
