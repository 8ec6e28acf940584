import json
from argparse import Namespace
from pathlib import Path

import pytest

from lab.bench.harness.record import described, write_record
from lab.bench.harness.statistics import Spread
from outrider import __version__
from tests.budgets import ROOT


def test_a_record_says_what_was_run_on_what(tmp_path: Path) -> None:
    write_record(tmp_path / "run.json", Namespace(out=tmp_path, tokens=3), {"figures": Spread(2.0, 1.0, 3.0)})
    read = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert read["settings"] == {"out": str(tmp_path), "tokens": 3}
    assert read["figures"] == {"median": 2.0, "low": 1.0, "high": 3.0}
    assert read["run"]["versions"]["outrider"] == __version__
    assert {"torch", "python"} <= set(read["run"]["versions"])
    assert read["run"]["machine"]["cpu"]
    assert read["run"]["command"]
    assert read["run"]["date"]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (str(ROOT / "cluster/cli.py"), "cluster/cli.py bench"),
        (".venv/bin/outrider", ".venv/bin/outrider bench"),
        ("/elsewhere/bin/outrider", "outrider bench"),
    ],
)
def test_a_command_names_no_folder_of_the_machine(program: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, "bench"])
    assert described()["command"] == told
