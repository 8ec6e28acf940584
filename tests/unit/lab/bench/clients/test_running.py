"""Clients' scripts as processes, what they leave, and what is reported of it."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.bench.clients.asking.checking import ROWS, Row
from lab.bench.clients.command import as_table, exit_status
from lab.bench.clients.environments import CLIENTS, PINS
from lab.bench.clients.running import run_script

PASSED, FAILED = Row("a", "1", "x", "passed"), Row("a", "1", "y", "failed", "needs this | found that")
WRITES = f"import sys, pathlib; pathlib.Path(sys.argv[1], {ROWS!r}).write_text({json.dumps(asdict(PASSED))!r})"


@pytest.mark.parametrize(
    ("script", "longest_s", "told"),
    [
        (WRITES, 60.0, ["x"]),
        (f"{WRITES}; sys.exit(3)", 60.0, ["x", "ended with status 3"]),
        ("import time; time.sleep(600)", 0.1, ["not at its end after 0.1 s"]),
    ],
)
def test_a_script_that_does_not_come_to_its_end_has_failed(
    tmp_path: Path, script: str, longest_s: float, told: list[str]
) -> None:
    command = [sys.executable, "-c", script, str(tmp_path)]
    rows = run_script(CLIENTS[0], command, {}, tmp_path, longest_s=longest_s)
    assert [row.told or row.done for row in rows] == told


def test_rows_of_an_earlier_run_are_not_read(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text(json.dumps(asdict(PASSED)), encoding="utf-8")
    assert run_script(CLIENTS[0], [sys.executable, "-c", ""], {}, tmp_path, longest_s=60.0) == []


def test_a_report_has_every_row() -> None:
    assert as_table([PASSED, FAILED]).splitlines()[2:] == [
        "| a | 1 | x | passed |  |",
        "| a | 1 | y | failed | needs this \\| found that |",
    ]


@pytest.mark.parametrize(("rows", "status"), [([PASSED], 0), ([PASSED, FAILED], 1), ([], 1)])
def test_what_failed_is_the_exit_status(rows: list[Row], status: int) -> None:
    assert exit_status(rows) == status


def test_each_client_has_its_pins_and_each_pin_is_exact() -> None:
    assert all(client.version for client in CLIENTS)
    for pins in PINS.iterdir():
        lines = pins.read_text(encoding="utf-8").splitlines()
        assert all(line.count("==") == 1 for line in lines), pins
        assert not any(line.startswith("torch==") for line in lines), pins
