"""On an embedded verifier with short responses: a place takes a second."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from lab.simulation.experiment import FLASH
from lab.simulation.published import TABLE_12
from lab.simulation.roofline import HARDWARE, MODELS
from lab.simulation.stop_map import (
    FIXED,
    QUICK,
    STOPPING,
    DraftEnding,
    Grid,
    MapCell,
    PlaceResult,
    cost_cases,
    places,
    run_place,
    windows_of,
)
from outrider.contracts.cost import BatchWork


def place(**settings: Any) -> MapCell:
    case = cost_cases()[2]
    assert case.name == "embedded"
    fields: dict[str, Any] = {
        "prompt_tokens": 30,
        "output_tokens": 24,
        "draft_tokens_per_s": 20.0,
        "token_acceptance": 0.7,
    } | settings
    made = replace(case.settings, **fields)
    return MapCell(replace(case, settings=made), promise=0.5, auc=0.767, least_responses=30, resolution=0.1)


@cache
def found() -> PlaceResult:
    return run_place(place())


def test_a_place_has_every_rule_with_the_same_devices() -> None:
    assert [one.ending for one in found().endings] == list(DraftEnding)
    most = found().of(DraftEnding.BEST).devices
    assert most > 1
    assert {one.full.devices for one in found().endings} == {most}
    assert {one.light.devices for one in found().endings} == {max(1, round(most / 4))}
    windows = {one.ending: one.window for one in found().endings if one.ending is not DraftEnding.BEST}
    assert windows == {DraftEnding.ALONE: 0} | dict.fromkeys((DraftEnding.WINDOW, *STOPPING), 8)


def test_nothing_fixed_that_drafts_is_above_the_best_window() -> None:
    best = found().of(DraftEnding.BEST)
    assert best.devices >= found().of(DraftEnding.WINDOW).devices
    for full in (False, True):
        ours, whole = (found().load(ending, full=full) for ending in (DraftEnding.BEST, DraftEnding.WINDOW))
        assert ours.goodput_tokens_per_s >= whole.goodput_tokens_per_s


def test_the_best_window_is_that_of_the_runs_where_the_closed_form_is_off() -> None:
    """It takes 3 for the best, which serve 5 devices; 4 serve 6."""
    here = place(token_acceptance=0.9)
    there = run_place(here)
    capacities = {window: windows_of(here, there.tokens_per_s)[window].capacity(6).devices for window in (3, 4)}
    assert (there.closed_form, there.of(DraftEnding.BEST).window) == (3, 4)
    assert there.of(DraftEnding.BEST).devices == capacities[4] > capacities[3]


def test_the_target_alone_is_simulated() -> None:
    alone = found().of(DraftEnding.ALONE)
    assert alone.devices > 1
    assert (alone.light.sent_tokens, alone.light.round_p50_s > 0.0) == (0.0, True)


def test_a_place_is_a_pure_function() -> None:
    assert run_place(place()) == found()


def test_rules_stop_and_windows_do_not() -> None:
    sent = {one.ending: one.light.sent_tokens for one in found().endings}
    assert sent[DraftEnding.BEFORE] < sent[DraftEnding.SENT] < sent[DraftEnding.WINDOW] < 8.0
    assert sent[DraftEnding.PRICED] < sent[DraftEnding.WINDOW]
    assert sent[DraftEnding.BEST] == pytest.approx(found().load(DraftEnding.BEST, full=False).window, rel=0.2)


def test_the_price_holds_its_own_beside_fixed_windows() -> None:
    for full in (False, True):
        assert found().goodput_over(DraftEnding.PRICED, (DraftEnding.BEST,), full=full) > 0.93


def test_ratios_are_over_the_better_one() -> None:
    devices = [found().of(ending).devices for ending in (DraftEnding.PRICED, *FIXED)]
    assert found().over(DraftEnding.PRICED, FIXED) == devices[0] / max(devices[1:])
    nobody = tuple(replace(one, devices=0) for one in found().endings)
    assert replace(found(), endings=nobody).over(DraftEnding.PRICED, FIXED) is None


def test_a_promise_is_a_share_of_what_one_alone_gets() -> None:
    assert place().tokens_per_s == pytest.approx(0.5 * replace(place(), promise=1.0).tokens_per_s)
    assert place(draft_tokens_per_s=5.0).tokens_per_s < place().tokens_per_s


@pytest.mark.parametrize(("grid", "cells"), [(QUICK, 4 * 2 * 2), (Grid(), 4 * 2 * 3 * 3)])
def test_the_map_has_every_case(grid: Grid, cells: int) -> None:
    laid_out = list(places(cost_cases(), grid, seed=3))
    assert len({(one.case.name, one.promise, one.case.settings) for one in laid_out}) == cells
    assert list(dict.fromkeys(one.case.name for one in laid_out)) == ["table 12", "flash", "embedded", "roofline"]
    assert {(one.seed, one.auc, one.resolution) for one in laid_out} == {(3, grid.auc, grid.resolution)}


def test_flash_costs_differ_from_table_12_in_reading_alone() -> None:
    assert replace(FLASH, seconds_per_cached_token=TABLE_12.seconds_per_cached_token) == TABLE_12
    read_s = FLASH.predict_work_s(BatchWork(0, 0, 10**6)) - FLASH.seconds_per_batch
    moved = 10**6 * MODELS["qwen3-32b"].kv_bytes_per_token
    assert moved / read_s == pytest.approx(0.8 * HARDWARE["a100-80gb"].bytes_per_s)
