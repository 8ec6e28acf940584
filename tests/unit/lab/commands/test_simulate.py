import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.cli import main
from lab.commands import simulate
from lab.reports.capacity import show_capacity
from lab.reports.simulation_plots import plot_capacity, plot_stops
from lab.reports.stop_map import show_stops
from lab.simulation.experiment import CapacityFigures, CellResult, LoadResult, Measure, cases
from lab.simulation.published import SPEEDS_TOKENS_PER_S as SPEEDS
from lab.simulation.results import ClassResults, PlanePoint
from lab.simulation.settings import Variant
from lab.simulation.stop_map import (
    STOPPING,
    DraftEnding,
    EndingResult,
    LoadFigures,
    PlaceResult,
    cost_cases,
)
from outrider.contracts.slo import SloClass
from outrider.scheduling.attribution import ViolationCause

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


FLEET = """
name: three servers
duration_s: 10
warmup_s: 1
verifiers:
  count: 3
  server: {cost: {profile: wisp_table_12}}
drafters:
  - {name: phones, count: 6, draft_tokens_per_s: 50, acceptance: [0.8], link: {profile: wifi_2m}}
traffic:
  - {name: readers, slo: speed_4, users: 6, prompt: {tokens: 60}, output: {tokens: 30}}
"""


def test_a_fleet_prints_who_got_what_and_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figures = tmp_path / "fleet.yaml", tmp_path / "figures.json"
    file.write_text(FLEET, encoding="utf-8")
    assert main(["simulate", str(file), "--json", str(figures), "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "three servers: 6 drafters, 3 verifiers; costs: the cost profile wisp_table_12" in printed
    assert "readers speed_4 4" in " ".join(printed.split())
    assert "rounds/s" in printed
    written = json.loads(figures.read_text(encoding="utf-8"))
    assert written["results"]["seed"] == 3
    assert f"simulated {written['results']['rounds']:,} rounds" in printed
    assert written["simulation"]["peak_mib"] > 0


@pytest.mark.parametrize("name", ["city_fleet", "a100_mixed"])
def test_a_scenario_has_no_plots(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", name, "--plots", str(tmp_path)]) == 2
    assert "--plots needs `outrider simulate capacity` or `stops`" in capsys.readouterr().err


def test_a_scenario_prints_every_system_and_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figures = tmp_path / "scenario.yaml", tmp_path / "figures.json"
    file.write_text(SCENARIO, encoding="utf-8")
    assert main(["simulate", str(file), "--json", str(figures), "--seed", "3"]) == 0
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
        assert main(["simulate", str(file), "--workers", workers, "--json", str(tmp_path / workers)]) == 0
        written.append((tmp_path / workers).read_text(encoding="utf-8"))
    assert written[0] == written[1]


def test_a_mistake_in_a_scenario_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO.replace("count: 4", "count: four"), encoding="utf-8")
    assert main(["simulate", str(file)]) == 2
    assert "devices[0].count needs an integer" in capsys.readouterr().err


def test_options_of_capacity_are_not_for_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "a100_mixed", "--quick"]) == 2
    assert (
        "--quick and --plots needs `outrider simulate capacity` or `stops`, found 'a100_mixed'"
        in capsys.readouterr().err
    )


def figures() -> CapacityFigures:
    """Of the quick experiment, as if the systems served 10, 11, 12, ... devices."""
    chosen = cases(quick=True)
    rates = {measure.value: 0.01 for measure in Measure}
    results = {
        (case.name, variant, speed): CellResult(
            case.name,
            variant,
            (speed,),
            10 + index,
            "chain 4",
            (),
            False,
            rates,
            1.0,
            1.0,
            1.0,
            0,
            1.0,
            1,
            10 + index,
            0.0,
            1.0,
        )
        for case in chosen
        for index, variant in enumerate(case.variants)
        for speed in case.speeds_tokens_per_s
    }
    mixed = (Variant.KV, Variant.WISP, Variant.WISP_FAIR, Variant.SCHEDULER, Variant.CHAINS)
    found = [results["table 12", variant, 8.0] for variant in mixed]
    counted: Any = {"devices": 9, "late_devices": 1, "responses": 30, "late_responses": 3, "rounds": 100}
    classes = [
        tuple(
            ClassResults(slo=SloClass("a", speed), late_queue_rounds=late, achieved_tokens_per_s=speed, **counted)
            for speed in SPEEDS
        )
        for late in (20, 60)
    ]
    plane = (PlanePoint(0.1, 0.2, 8.0, None), PlanePoint(0.3, 0.2, 8.0, ViolationCause.QUEUE))
    loads = tuple(
        LoadResult(variant, devices, by_class, 100.0, 0.5, 0.1, 0.2, 0.3, plane)
        for variant in mixed
        for devices, by_class in zip((50, 90), classes, strict=True)
    )
    return CapacityFigures(tuple(chosen), results, {"table 12, free": found}, loads)


def test_capacity_prints_ours_beside_the_published(capsys: pytest.CaptureFixture[str]) -> None:
    show_capacity(figures())
    printed = " ".join(capsys.readouterr().out.split())
    assert "table 12 8/s 14 0.64 1.40 1.27" in printed, "what the service does: 14 over 22, 10 and 11"
    assert "table 12, free mixed 14 - - 1.27" in printed
    assert "sled 10 (21)" in printed, "devices at 8 tokens/s, WISP's in brackets"
    assert "Table 1: rounds slower than promised (published), at the 90 devices nearest to its fcfs row" in printed
    assert "fcfs 60.0 % (0.0 %)" in printed


def test_capacity_draws_three_plots(tmp_path: Path) -> None:
    plot_capacity(tmp_path, figures())
    assert sorted(drawn.name for drawn in tmp_path.glob("*.png")) == ["capacity.png", "plane.png", "violations.png"]


def of_a_place(devices: int, goodput: float) -> PlaceResult:
    """The target alone serves 7, windows 10, and 1000 tokens/s; rules that stop the given."""
    run = LoadFigures(10, 8, 1000.0, 9.0, 0.05, 0.3, 0.6, 4.0, 0.7, 0.9)
    kept = {DraftEnding.ALONE: 7, DraftEnding.WINDOW: 10, DraftEnding.BEST: 10}
    endings = tuple(EndingResult(ending, 8, count, False, run, run) for ending, count in kept.items())
    stopped = replace(run, goodput_tokens_per_s=goodput)
    endings += tuple(EndingResult(ending, 8, devices, False, stopped, stopped) for ending in STOPPING)
    return PlaceResult("table 12", 0.5, 8.0, 0.875, 50.0, 0.767, 6, endings)


def test_stops_prints_what_each_rule_wins_and_loses(capsys: pytest.CaptureFixture[str]) -> None:
    show_stops(cost_cases(), [of_a_place(12, 900.0), of_a_place(8, 1020.0)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "table 12 0.767 0.5 0.875 50 8.00 7 10 10 (8, 6) 12 12 12" in printed
    assert "while it pays over the best window capacity 0.80 1.00 1.20 1 0 1" in printed
    assert "while it pays over the best window or none tokens/s, full 0.90 0.96 1.02 0 1 1" in printed
    assert "900 5.0 % 300 600 4.0 0.70" in printed


def test_stops_draws_a_plot(tmp_path: Path) -> None:
    other = replace(of_a_place(8, 1020.0), case="flash", acceptance=0.5)
    nobody = tuple(replace(one, devices=0) for one in other.endings)
    plot_stops(tmp_path, [of_a_place(12, 900.0), other, replace(other, draft_tokens_per_s=15.0, endings=nobody)])
    assert [drawn.name for drawn in tmp_path.glob("*.png")] == ["stops.png"]


def test_stops_is_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two places with either cost model, which are not run."""
    monkeypatch.setattr(simulate, "run_place", lambda place: replace(of_a_place(12, 900.0), auc=place.auc))
    figures = tmp_path / "stops.json"
    assert (
        main(
            [
                "simulate",
                "stops",
                "--quick",
                "--costs",
                "table 12",
                "embedded",
                "--seed",
                "4",
                "--acceptances",
                "0.7",
                "--auc",
                "0.9",
                "--json",
                str(figures),
                "--plots",
                str(tmp_path),
            ]
        )
        == 0
    )
    written = json.loads(figures.read_text(encoding="utf-8"))
    assert (written["seed"], len(written["places"])) == (4, 4)
    assert written["grid"]["acceptances"] == [0.7]
    assert set(written["sources"]) == {"table 12", "embedded"}
    assert [one["auc"] for one in written["places"]] == [0.9] * 4
    assert "devices with their promise kept" in capsys.readouterr().out


def test_no_base_no_multiple() -> None:
    found = figures()
    none = {key: replace(one, devices=0) for key, one in found.found.items()}
    assert found.multiple(found.cases[0], Variant.KV, Variant.SLED, 8.0) == 1.1
    assert replace(found, found=none).multiple(found.cases[0], Variant.KV, Variant.SLED, 8.0) is None


def test_the_nearest_load_needs_runs() -> None:
    assert replace(figures(), loads=()).nearest_load((0.1, 0.2, 0.3, 0.4)) is None
