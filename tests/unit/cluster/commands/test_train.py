from dataclasses import fields

import pytest

from cluster.cli import main
from cluster.commands.train import division
from outrider.training.head.head_config import HeadConfig


def test_every_setting_of_a_head_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "head", "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    flags = [f"--{field.name.replace('_', '-')} " for field in fields(HeadConfig)]
    assert [flag for flag in [*flags, "--tasks "] if flag not in printed] == []


def test_flags_reach_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    needed = ["train", "head", "--target", "none", "--drafter", "none", "--tasks", "none", "--out", "head.safetensors"]
    assert main([*needed, "--kappa", "0"]) == 2
    assert capsys.readouterr().err == "outrider: error: kappa needs a number > 0, found 0.0\n"
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
