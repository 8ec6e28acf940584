import json
from pathlib import Path

import pytest

from cluster.cli import main
from lab.scenarios import SCENARIOS, scenario_file
from lab.simulation.reading import load_scenario
from tests.unit.lab.commands.test_simulate import SCENARIO


@pytest.mark.long
def test_a_plan_compares_with_the_target_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figures = tmp_path / "scenario.yaml", tmp_path / "figures.json"
    file.write_text(SCENARIO, encoding="utf-8")
    assert main(["plan", str(file), "--seeds", "1", "--json", str(figures)]) == 0
    printed = capsys.readouterr().out
    assert "one server keeps its promises to" in printed
    assert "first token p50" in printed
    assert "WARNING" not in printed
    found = json.loads(figures.read_text(encoding="utf-8"))
    served = [found[side]["served"]["devices"] for side in ("drafting", "target_alone")]
    assert found["multiple"] == served[0] / served[1]
    assert all(line + "." in printed.replace("\n", " ") for line in found["advice"])


def test_a_plan_warns_where_nothing_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scenario.yaml"
    roofline = "{roofline: {model: qwen3-14b, gpu: h100}}"
    text = SCENARIO.replace("{profile: wisp_table_12}", roofline).replace("    slo: brisk\n", "")
    file.write_text(text, encoding="utf-8")
    assert main(["plan", str(file)]) == 0
    assert "WARNING: the cost model is a roofline" in capsys.readouterr().out


@pytest.mark.parametrize(("flag", "value"), [("--seeds", "0"), ("--first-token-s", "0")])
def test_flags_of_the_plan_itself_have_ranges(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "embedded_pair", flag, value])
    assert f"argument {flag}: needs" in capsys.readouterr().err


@pytest.mark.parametrize("name", SCENARIOS)
def test_shipped_scenarios_are_found_by_name(name: str) -> None:
    assert load_scenario(scenario_file(name)).scenarios
    assert scenario_file("my.yaml") == Path("my.yaml")
