import json
from pathlib import Path

import pytest

from bench.plan import main as plan
from bench.simulate import main as simulate
from bench.simulate_cases import Case, capacity_cells, cases
from bench.simulate_explained import explain, multiple, table_1
from bench.simulate_fit import GRID, plausible, ratios, starts
from bench.simulate_sensitivity import RUNGS, SWEEPS, sensitivity_cells
from outrider.contracts.errors import ConfigError, ParameterError
from outrider.simulation.experiment import CellResult, Measure
from outrider.simulation.published import VIOLATION_RATES
from outrider.simulation.settings import Rung, preset

SCENARIO = """
name: two systems
systems: [sled_kv, outrider]
duration_s: 20
warmup_s: 4
slo_classes: [{name: brisk, tokens_per_s: 6}]
server:
  cost: {profile: wisp_table_12}
devices:
  - name: jetson
    slo: brisk
    count: 4
    draft_tokens_per_s: 50
    acceptance: [0.8]
    prompt: {tokens: 60}
    output: {tokens: 30}
    link: {profile: wifi_2m}
"""


def test_a_scenario_prints_every_system_and_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figures = tmp_path / "scenario.yaml", tmp_path / "figures.json"
    file.write_text(SCENARIO, encoding="utf-8")
    simulate([str(file), "--json", str(figures), "--seed", "3"])
    printed = capsys.readouterr().out
    assert "two systems: 4 devices; costs: the cost profile wisp_table_12" in printed
    for system in ("sled_kv", "outrider"):
        assert f"{system}   brisk" in " ".join(printed.split()).replace(f"{system} brisk", f"{system}   brisk")
    written = json.loads(figures.read_text(encoding="utf-8"))
    assert [result["seed"] for result in written["results"]] == [3, 3]


def test_workers_find_what_one_process_finds(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    written = []
    for workers in ("1", "2"):
        simulate([str(file), "--workers", workers, "--json", str(tmp_path / workers)])
        written.append((tmp_path / workers).read_text(encoding="utf-8"))
    assert written[0] == written[1]


def test_a_mistake_in_a_scenario_is_named(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO.replace("count: 4", "count: four"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"devices\[0\]\.count needs an integer"):
        simulate([str(file)])


def test_a_plan_compares_with_the_target_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figures = tmp_path / "scenario.yaml", tmp_path / "figures.json"
    file.write_text(SCENARIO, encoding="utf-8")
    plan([str(file), "--json", str(figures)])
    printed = capsys.readouterr().out
    assert "where the target alone serves" in printed
    assert "WARNING" not in printed
    (group,) = json.loads(figures.read_text(encoding="utf-8"))["groups"]
    assert group["multiple"] == group["capacity"]["devices"] / int(group["target_alone"]["devices"])


def test_a_plan_warns_where_nothing_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scenario.yaml"
    roofline = "{roofline: {model: qwen3-14b, gpu: h100}}"
    text = SCENARIO.replace("{profile: wisp_table_12}", roofline).replace("    slo: brisk\n", "")
    file.write_text(text, encoding="utf-8")
    plan([str(file)])
    assert "WARNING: the cost model is a roofline" in capsys.readouterr().out


def test_a_plan_of_nothing_says_what_it_needs() -> None:
    with pytest.raises(ParameterError, match="--draft-tokens-per-s"):
        plan(["--devices", "3"])


def results(case: Case, counts: dict[Rung, int]) -> list[CellResult]:
    rates = {measure.value: 0.01 for measure in Measure}
    return [
        CellResult(
            case.name, rung, (speed,), Measure.RESPONSE, count, "chain 4", (), False, rates, 1.0, 1.0, 1.0, 0, 1.0, 1
        )
        for rung, count in counts.items()
        for speed in case.speeds_tokens_per_s
    ]


def test_every_gap_is_explained_with_its_figures() -> None:
    chosen = cases(None, quick=True)
    counts = {rung: 10 + index for index, rung in enumerate(Rung)} | {Rung.SLED: 20, Rung.CENTRALIZED: 80}
    found = {
        (one.costs_name, one.rung, one.speeds_tokens_per_s[0]): one for case in chosen for one in results(case, counts)
    }
    texts = explain(chosen, found)
    assert "centralized at 8 tokens/s 80 against 41" in texts[0]
    assert "sled at 8" not in texts[0], "20 against 21 is within 10 %"
    assert any("61035 tokens" in text for text in texts)
    assert sum("Costs decide" in text for text in texts) == len(chosen) - 2
    assert sum("KV memory for everybody" in text for text in texts) == 1
    assert multiple(found, chosen[0], Rung.SLED, Rung.CENTRALIZED, 8.0) == 0.25


def test_no_base_no_multiple() -> None:
    case = cases(None, quick=True)[0]
    found = {(one.costs_name, one.rung, 8.0): one for one in results(case, {Rung.SLED: 0, Rung.KV: 5})}
    assert multiple(found, case, Rung.KV, Rung.SLED, 8.0) is None


def test_table_1_needs_runs() -> None:
    assert table_1([], VIOLATION_RATES["fcfs"]) is None


def test_cells_cover_every_system_and_speed() -> None:
    for case in cases(None, quick=False):
        cells = capacity_cells(case, 5, quick=False)
        assert {(cell.rung, cell.speeds_tokens_per_s[0]) for cell in cells} == {
            (rung, speed) for rung in case.rungs for speed in case.speeds_tokens_per_s
        }
        assert {cell.seed for cell in cells} == {5}


def test_sweeps_change_one_setting_each() -> None:
    points = sensitivity_cells(cases(None, quick=False)[0], 0, quick=False)
    assert len(points) == len(RUNGS) * sum(len(values) for values in SWEEPS.values())
    jittery = [cell for setting, value, cell in points if setting == "jitter_ms" and value == 100.0]
    assert all(cell.settings.jitter_s == 0.1 and cell.settings.rtt_s >= 2 * 0.1 for cell in jittery)


def test_the_frozen_settings_are_on_the_grid_that_is_searched() -> None:
    settings = preset("wisp_table_2")
    assert plausible(settings)
    for field, values in GRID.items():
        assert getattr(settings, field) in values
    assert any(plausible(one) for one in starts(settings))


def test_the_frozen_settings_reach_the_promised_speeds_at_the_printed_devices() -> None:
    case = cases(None, quick=True)[0]
    found = ratios(case.settings, case.costs, seed=0)
    assert set(found) == {"sled", "centralized"}
    assert all(0.9 <= ratio <= 1.1 for column in found.values() for ratio in column)
