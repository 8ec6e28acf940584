"""Cells of a closed loop: what is compared is alike, and a regret is what its name says."""

import json
from pathlib import Path

import pytest

from lab.bench.mode_choice.cells import Cell, Outcome, played
from lab.bench.mode_choice.command import main

CELL = Cell("torch-float32", 4, 0.0, 0.0189, 0.65, 6.0, 1, "cheapest", ("none", "draft"))


def test_a_cell_is_the_same_again_and_each_window_is_one_of_its_own() -> None:
    outcome = played(CELL, (0, 4), 2.0)
    assert outcome == played(CELL, (0, 4), 2.0)
    assert outcome.fixed[0] != outcome.fixed[4]
    assert 0 < outcome.chosen_warm < outcome.chosen


def test_regret_is_what_is_missing_to_a_window() -> None:
    outcome = Outcome(CELL, {0: 100, 2: 200}, {0: 50, 2: 40}, 190, 60, "draft", 1, 0.1)
    assert outcome.best == 2
    assert outcome.regret(2, warm=False) == pytest.approx(0.05)
    assert outcome.regret(0, warm=True) == pytest.approx(-0.2)


def test_the_command_writes_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "--costs",
        "torch-float32",
        "--clients",
        "1",
        "--rtt-ms",
        "0",
        "--windows",
        "0",
        "4",
        "--seconds",
        "3",
        "--warmup-s",
        "1",
    ]
    main([*asked, "--json", str(tmp_path / "figures.json")])
    assert "Regret of the tuner" in capsys.readouterr().out
    (outcome,) = json.loads((tmp_path / "figures.json").read_text())["outcomes"]
    assert outcome["chosen"] > 0
    with pytest.raises(SystemExit):
        main(["--windows", "1"])
    assert "--windows needs 0 among them" in capsys.readouterr().err
