"""On an embedded verifier with short responses: a place takes a second."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from outrider.contracts.cost import BatchWork
from outrider.simulation.published import TABLE_12
from outrider.simulation.roofline import HARDWARE, MODELS
from outrider.simulation.stop_map import FIXED, FLASH, Ending, Place, PlaceResult, cost_cases, places, run_place


def place(**settings: Any) -> Place:
    case = cost_cases(None)[2]
    assert case.name == "embedded"
    fields: dict[str, Any] = {
        "prompt_tokens": 30,
        "output_tokens": 24,
        "draft_tokens_per_s": 20.0,
        "token_acceptance": 0.7,
    } | settings
    return Place(replace(case, settings=replace(case.settings, **fields)), promise=0.5, auc=0.767, resolution=0.1)


@cache
def found() -> PlaceResult:
    return run_place(place())


def test_a_place_has_every_rule_with_the_same_devices() -> None:
    assert [one.ending for one in found().endings] == list(Ending)
    most = max(found().of(ending).devices for ending in FIXED)
    assert most > 1
    assert {one.full.devices for one in found().endings} == {most}
    assert {one.light.devices for one in found().endings} == {max(1, round(most / 4))}
    assert [one.window for one in found().endings if one.ending is not Ending.BEST] == [8] * 4


def test_a_place_is_a_pure_function() -> None:
    assert run_place(place()) == found()


def test_rules_stop_and_windows_do_not() -> None:
    sent = {one.ending: one.light.sent_tokens for one in found().endings}
    assert sent[Ending.BEFORE] < sent[Ending.SENT] < sent[Ending.WINDOW] < 8.0
    assert sent[Ending.PRICED] < sent[Ending.WINDOW]
    best = found().of(Ending.BEST)
    assert sent[Ending.BEST] == pytest.approx(best.window, rel=0.2)


def test_the_price_holds_its_own_beside_fixed_windows() -> None:
    for full in (False, True):
        assert found().goodput_over(Ending.PRICED, FIXED, full=full) > 0.93


def test_ratios_are_over_the_better_one() -> None:
    devices = [found().of(ending).devices for ending in (Ending.PRICED, *FIXED)]
    assert found().over(Ending.PRICED, FIXED) == devices[0] / max(devices[1:])
    nobody = tuple(replace(one, devices=0) for one in found().endings)
    assert replace(found(), endings=nobody).over(Ending.PRICED, FIXED) is None


def test_a_promise_is_a_share_of_what_one_alone_gets() -> None:
    assert place().tokens_per_s == pytest.approx(0.5 * replace(place(), promise=1.0).tokens_per_s)
    assert place(draft_tokens_per_s=5.0).tokens_per_s < place().tokens_per_s


@pytest.mark.parametrize(("quick", "cells"), [(True, 16), (False, 4 * 2 * 2 * 3 * 3)])
def test_the_map_has_every_case(*, quick: bool, cells: int) -> None:
    laid_out = list(places(cost_cases(None), 3, quick=quick))
    assert len({(one.case.name, one.promise, one.auc, one.case.settings) for one in laid_out}) == cells
    assert list(dict.fromkeys(one.case.name for one in laid_out)) == ["table 12", "flash", "embedded", "roofline"]
    assert {one.seed for one in laid_out} == {3}


def test_flash_costs_differ_from_table_12_in_reading_alone() -> None:
    assert replace(FLASH, seconds_per_cached_token=TABLE_12.seconds_per_cached_token) == TABLE_12
    read_s = FLASH.predict_work_s(BatchWork(0, 0, 10**6)) - FLASH.seconds_per_batch
    moved = 10**6 * MODELS["qwen3-32b"].kv_bytes_per_token
    assert moved / read_s == pytest.approx(0.8 * HARDWARE["a100-80gb"].bytes_per_s)
