import json
from pathlib import Path

import pytest

from cluster.cli import main
from cluster.scenarios import SCENARIOS, scenario_file
from outrider.simulation.reading import load_scenario
from tests.unit.cluster.commands.test_simulate import SCENARIO


def test_a_plan_compares_with_the_target_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figures = tmp_path / "scenario.yaml", tmp_path / "figures.json"
    file.write_text(SCENARIO, encoding="utf-8")
    assert main(["plan", str(file), "--json", str(figures)]) == 0
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
    assert main(["plan", str(file)]) == 0
    assert "WARNING: the cost model is a roofline" in capsys.readouterr().out


def test_flags_make_a_plan_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    cost = ["--profile", "wisp_table_12", "--kv-tokens", "60000"]
    assert main(["plan", "--devices", "3", "--draft-tokens-per-s", "50", "--acceptance", "0.8", *cost]) == 0
    assert "your devices: 3 devices; costs: the cost profile wisp_table_12" in capsys.readouterr().out


def test_a_plan_of_nothing_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--devices", "3"]) == 2
    assert "--draft-tokens-per-s" in capsys.readouterr().err


@pytest.mark.parametrize("name", SCENARIOS)
def test_shipped_scenarios_are_found_by_name(name: str) -> None:
    assert load_scenario(scenario_file(name)).scenarios
    assert scenario_file("my.yaml") == Path("my.yaml")
