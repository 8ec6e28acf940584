import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from cluster.cli import main
from lab.commands.train import division
from lab.reports.json_file import write_json
from lab.reports.predictor_plots import plot_predictor
from lab.reports.training import show_predictor
from lab.training.head.head_config import HeadConfig
from lab.training.predictor.logistic import Platt
from lab.training.predictor.predictor_config import PredictorConfig
from lab.training.predictor.quality import Replay, feature_trend, latency, quality
from lab.training.predictor.train import FamilyReport, PartReport, PredictorReport
from outrider.drafting.features import FEATURE_NAMES


def test_every_setting_of_a_head_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "head", "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    flags = [f"--{field.name.replace('_', '-')} " for field in fields(HeadConfig)]
    assert [flag for flag in [*flags, "--tasks "] if flag not in printed] == []


def test_every_setting_of_a_predictor_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "predictor", "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    flags = [f"--{field.name.replace('_', '-')} " for field in fields(PredictorConfig)]
    assert [flag for flag in flags if flag not in printed] == []


def test_flags_reach_the_training_of_a_predictor(capsys: pytest.CaptureFixture[str]) -> None:
    needed = ["train", "predictor", "--target", "none", "--drafter", "none", "--out", "predictor.safetensors", "--rule"]
    assert main([*needed, "judged"]) == 2
    expected = "outrider: error: rule needs one of greedy, shared_noise, ratio, found 'judged'\n"
    assert capsys.readouterr().err == expected
    assert main([*needed, "ratio", "--temperatures", "0.7,0"]) == 2
    assert "temperatures needs numbers above 0 for the rule ratio, found 0.0" in capsys.readouterr().err


def test_a_report_shows_every_model_and_what_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    told = quality(np.array([0.2, 0.5, 0.9]), np.array([0.3, 0.6, 0.8]), [0, 1, 1])
    one = FamilyReport("MLP", {}, 3, Platt(1.0, 0.0), told, {"0.7": told, "1": told}, latency([0.001, 0.003]))
    only_accepted = quality(np.array([0.9]), np.array([0.9]), [1])
    other = FamilyReport("forest", {}, 3, Platt(1.0, 0.0), only_accepted, {"0.7": told}, latency([0.04]))
    report = PredictorReport(
        parts={"train": PartReport(7, 1234, 900)},
        trends=(feature_trend("margin", np.linspace(0.0, 1.0, 20), [0, 1] * 10),),
        families=(one, other),
        left_out={"XGBoost": "No module named 'xgboost'"},
        replays={"MLP": {"all": Replay(345, 0.7, 0.6, 0.05, 0.0321)}},
        threshold=0.625,
    )
    config = PredictorConfig(target="target", drafter="drafter", rule="ratio", out=tmp_path / "p.safetensors")
    show_predictor(config, report)
    printed = capsys.readouterr().out
    for expected in (
        "1234",
        "72.9 %",
        "margin",
        "forest",
        "40.0000",
        "0.7",
        "left out: XGBoost (No module",
        "operating point 0.625",
        "345",
        "0.0321",
    ):
        assert expected in printed
    write_json(tmp_path / "report.json", {"config": config.plain(), "report": report})
    record = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert record["report"]["families"][0]["test"]["confusion"]["true_accepted"] == 2


def test_flags_reach_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    needed = ["train", "head", "--target", "none", "--drafter", "none", "--tasks", "none", "--out", "head.safetensors"]
    assert main([*needed, "--most-drop", "0"]) == 2
    assert capsys.readouterr().err == "outrider: error: most_drop needs a number > 0, found 0.0\n"
    assert main([*needed, "--mismatches-per-task", "all", "--thresholds", "0,0.5,0.4"]) == 2
    assert "thresholds needs numbers that rise from 0 to at most 1, found (0.0, 0.5, 0.4)" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["train"], ["train", "head"], ["train", "nothing"]])
def test_a_malformed_command_exits_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: outrider train" in capsys.readouterr().err


def test_fewer_tasks_to_learn_from_leave_calibration_and_test_as_they_are() -> None:
    every, few = division("embedded:2", None), division("embedded:2", 3)
    assert len(every.training) > len(few.training) == 3
    assert few.training == every.training[:3]
    assert (few.calibration, few.test) == (every.calibration, every.test)


def test_a_plot_has_every_feature_and_every_model(tmp_path: Path) -> None:
    told = quality(np.array([0.2, 0.5, 0.9]), np.array([0.3, 0.6, 0.8]), [0, 1, 1])
    one = FamilyReport("MLP", {}, 3, Platt(1.0, 0.0), told, {}, latency([0.001]))
    trends = tuple(feature_trend(name, np.linspace(0.0, 1.0, 20), [0, 1] * 10) for name in FEATURE_NAMES)
    file = tmp_path / "plots" / "predictor_ratio.png"
    plot_predictor(file, PredictorReport({}, trends, (one, one), {}, {}, 0.5))
    assert file.read_bytes().startswith(b"\x89PNG")
