from dataclasses import replace

import pytest

from lab.simulation.experiment import Case, Cell, Measure, first_guess, run, run_cell, run_load
from lab.simulation.published import TABLE_12
from lab.simulation.settings import Settings, Variant, preset, scenario_of

COSTS = TABLE_12
SETTINGS = replace(preset("wisp_table_2"), output_tokens=48)


def case(settings: Settings) -> Case:
    return Case("table 12", "", settings, COSTS, (8.0,), ())


def cell(variant: Variant, speeds: tuple[float, ...] = (8.0,), responses: float = 1.0) -> Cell:
    return Cell(case(SETTINGS), variant, speeds, responses=responses, resolution=0.1)


def test_a_search_ends_between_what_holds_and_what_does_not() -> None:
    found = run_cell(cell(Variant.CENTRALIZED))
    assert found.devices == pytest.approx(41, rel=0.2), "WISP Table 2, centralized at 8 tokens/s"
    eps = SETTINGS.epsilon
    assert all(rate <= eps for devices, rate in found.tried if devices == found.devices)
    assert any(rate > eps for devices, rate in found.tried if devices > found.devices)
    assert found.draft == "none"
    assert set(found.violation_rates) == {measure.value for measure in Measure}


def test_the_same_cell_gives_the_same_result() -> None:
    assert run_cell(cell(Variant.SLED)) == run_cell(cell(Variant.SLED))


def test_kept_kv_serves_more_than_recomputing() -> None:
    assert run_cell(cell(Variant.KV)).devices > 2 * run_cell(cell(Variant.SLED)).devices


def test_the_guess_is_within_memory() -> None:
    small = replace(cell(Variant.KV), case=case(replace(SETTINGS, kv_tokens=6000)))
    assert first_guess(small) <= 6000 / SETTINGS.prompt_tokens


def test_nobody_served_is_said_so() -> None:
    hopeless = replace(cell(Variant.KV), case=case(replace(SETTINGS, draft_tokens_per_s=1.0)))
    assert run_cell(hopeless).devices == 0


def test_a_load_reports_every_class() -> None:
    found = run_load((cell(Variant.SCHEDULER, (4.0, 8.0)), 8))
    assert [one.slo.tokens_per_s for one in found.by_class] == [4.0, 8.0]
    assert sum(one.devices for one in found.by_class) == found.devices == 8


def test_admission_keeps_memory_from_being_overrun() -> None:
    free = replace(SETTINGS, kv_tokens=12_000)
    crowded = run(replace(cell(Variant.SCHEDULER), case=case(free)), 40)
    admitting = run(replace(cell(Variant.ADMISSION), case=case(free)), 40)
    assert scenario_of(free, COSTS, Variant.ADMISSION, (8.0,), 40).admission is not None
    assert scenario_of(free, COSTS, Variant.SCHEDULER, (8.0,), 40).admission is None
    assert admitting.evictions < crowded.evictions
    assert admitting.promised.late_responses <= crowded.promised.late_responses
    assert admitting.admission is not None
    assert admitting.admission.classes["speed_8"].waiting > 0


def test_who_is_not_let_in_is_not_served() -> None:
    found = run(
        replace(cell(Variant.ADMISSION, responses=4.0), case=case(replace(SETTINGS, kv_tokens=6_000))), 80
    ).promised
    assert found.refused > 0
    assert found.response_violation_rate >= found.refused / (found.responses + found.refused)
